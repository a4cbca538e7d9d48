// Enhancements of the console; every page works without JavaScript.
"use strict";

const main = document.getElementById("main");
const live = main.querySelector("[data-live]");

// The texts that scripts show, in the language of the page.
const texts = Object.assign({}, ...[...document.querySelectorAll("[data-texts]")].map(({ dataset }) => ({ ...dataset })));

// Times are in the time zone of the profile, else in that of the browser: the service reads it from a cookie.
const timezone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const hasTimezone = () => document.cookie.split("; ").includes(`cx_timezone=${timezone}`);
if (timezone && ![undefined, timezone].includes(main.dataset.timezone) && !hasTimezone()) {
  document.cookie = `cx_timezone=${timezone}; Path=/; SameSite=Lax; Max-Age=31536000`;
  if (hasTimezone()) location.reload();
}

// On a window that is too low for all links of the menu, shows that of this page.
const navigation = document.getElementById("navigation");
navigation.scrollTop = (navigation.querySelector("[aria-current]")?.offsetTop ?? 0) - navigation.clientHeight / 2;

// Submits each form once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.submitted) event.preventDefault();
  form.dataset.submitted = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-submitted]")) delete form.dataset.submitted;
});

// Announces the result of a form to screen readers, which do not announce text that is present at load.
const result = main.querySelector("[role=status]").textContent.trim();
if (result) setTimeout(() => (main.querySelector("[data-announcer]").textContent = result), 500);

const hasRoom = matchMedia("(width >= 1400px)"); // for a part beside the page

// Closes open menus on Escape and on a click elsewhere.
const openMenus = () => document.querySelectorAll(`details:is([name=menu]${hasRoom.matches ? "" : ", [data-remember]"})[open]`);
document.addEventListener("click", ({ target }) => {
  for (const menu of openMenus()) if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape") return;
  for (const menu of openMenus()) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
});
document.addEventListener("toggle", ({ target }) => {
  if (!target.matches("details[name=menu]:not([open])")) return;
  for (const confirmation of target.querySelectorAll("details")) confirmation.open = false;
}, true);

// Reports a file that is too large before the form is sent, so that nothing else in the form is lost.
document.addEventListener("change", ({ target }) => {
  const limit = Number(target.dataset.maxSize);
  if (!limit) return;
  const isTooLarge = [...target.files].some(({ size }) => size > limit);
  target.setCustomValidity(isTooLarge ? texts.tooLarge : "");
  target.reportValidity();
});

// Copies the text of a field; without access to the clipboard, as on pages without TLS, selects it.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const field = button.parentElement.querySelector("[data-copied]");
    field.select();
    const isCopied = await navigator.clipboard?.writeText(field.value).then(() => true, () => false);
    button.textContent = isCopied || document.execCommand("copy") ? texts.copied : texts.pressToCopy;
    main.querySelector("[data-announcer]").textContent = button.textContent;
  });
}

// Live updates: while the page is visible, a stream of events brings changes from the server; where there is none, such as
// behind a proxy that refuses it, a long poll does.
const STREAM_DELAY = 200; // milliseconds between two updates of the page, for the changes in between
const MAX_WAIT = 25; // seconds
const MIN_DELAY = 1_000; // milliseconds between requests
const MAX_DELAY = 60_000; // after errors, or if the server does not wait
const FINAL_STATUSES = [400, 401, 403, 404]; // a retry cannot succeed
const connectionNotice = document.querySelector("[data-connection]");
let { after } = main.dataset;
let polling = new AbortController();

async function fetchPage(address, controller) {
  const signal = AbortSignal.any([controller.signal, AbortSignal.timeout(MAX_DELAY)]);
  const response = await fetch(address, { signal, headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(response.status);
  return parse(await response.text());
}

function parse(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

// Fetches the current page; again if the response to a form arrived meanwhile, because that is newer.
let sending = 0; // number of requests of forms that are running
let responses = 0; // number of responses to forms

async function fetchCurrentPage(controller) {
  for (;;) {
    const before = responses;
    const page = await fetchPage(live.dataset.url ?? location.href, controller);
    while (sending) await pause(MIN_DELAY / 10);
    if (before === responses) return page;
  }
}

const pause = (delay) => new Promise((resolve) => setTimeout(resolve, delay));

async function followChanges(controller) {
  while (after && !controller.signal.aborted) {
    await followStream(controller);
    await poll(controller, performance.now() + MAX_DELAY);
  }
}

// Shows the changes of a stream until it ends for good. After a lost connection, the browser opens it again by itself.
function followStream(controller) {
  if (controller.signal.aborted) return;
  return new Promise((resolve) => {
    const source = new EventSource(`/console/news/stream?${new URLSearchParams({ after })}`);
    const end = () => {
      source.close();
      resolve();
    };
    controller.signal.addEventListener("abort", end);
    source.addEventListener("open", () => showConnection(true));
    source.addEventListener("typing", ({ data }) => dispatchEvent(new CustomEvent("typing", { detail: JSON.parse(data) })));
    source.addEventListener("draft", ({ data }) => dispatchEvent(new CustomEvent("draft", { detail: JSON.parse(data) })));
    source.addEventListener("error", () => (source.readyState === EventSource.CLOSED ? end() : showConnection(false)));
    let pending = null; // changes that arrive while others are shown
    let isBusy = false;
    source.addEventListener("changes", async ({ data }) => {
      const changes = JSON.parse(data);
      changes.chats.push(...(pending?.chats ?? []));
      changes.notifications ||= pending?.notifications;
      pending = changes;
      if (isBusy) return;
      isBusy = true;
      try {
        while (pending) {
          const shown = pending;
          pending = null;
          await showChanges(shown, controller);
          await pause(STREAM_DELAY);
        }
      } catch {
        end(); // the long poll tries again
      }
      isBusy = false;
    });
  });
}

// Requests changes by a long poll until a time has come.
async function poll(controller, until) {
  for (let delay = MIN_DELAY; after && !controller.signal.aborted && performance.now() < until; ) {
    const start = performance.now();
    try {
      const address = `/console/news?${new URLSearchParams({ after, wait: connectionNotice.hidden ? MAX_WAIT : 0 })}`;
      const updates = (await fetchPage(address, controller)).querySelector("[data-after]").dataset;
      await showChanges(updates, controller);
      showConnection(true);
      const hasWaited = performance.now() - start > 2 * MIN_DELAY;
      const hasChanges = updates.chats || updates.notifications;
      delay = hasChanges || hasWaited ? MIN_DELAY : Math.min(2 * delay, MAX_DELAY);
    } catch (error) {
      if (FINAL_STATUSES.includes(Number(error.message))) after = "";
      if (!controller.signal.aborted && isOffline(error)) showConnection(false);
      delay = Math.min(2 * delay, MAX_DELAY);
    }
    await pause(delay);
  }
}

async function showChanges(updates, controller) {
  showUnreadCount(Number(updates.unread));
  if (isShown(updates)) showPage(await fetchCurrentPage(controller));
  after = updates.after;
}

// Returns whether a change concerns this page: the chat, or the list of chats if it is visible.
function isShown(updates) {
  if (!live) return false;
  const list = main.querySelector(".chats");
  const hasList = !live.dataset.live || list?.checkVisibility();
  return hasList ? Boolean(updates.chats.length || updates.notifications) : updates.chats.includes(live.dataset.live);
}

// An error without a response: the network, or a proxy that does not reach the service.
const isOffline = (error) => !FINAL_STATUSES.includes(Number(error.message)) && error.message !== "503";

// Shows that the connection is lost, or hides that.
function showConnection(isConnected) {
  if (isConnected && !connectionNotice.hidden) dispatchEvent(new Event("reconnected"));
  connectionNotice.hidden = isConnected;
}
addEventListener("offline", () => showConnection(false));
addEventListener("online", restartPolling);

function restartPolling() {
  polling.abort();
  if (document.hidden) return;
  polling = new AbortController();
  followChanges(polling);
}
document.addEventListener("visibilitychange", restartPolling);
restartPolling();

function showUnreadCount(number) {
  for (const count of document.querySelectorAll("[data-unread]")) {
    count.textContent = number < 100 ? number : "99+";
    count.parentElement.hidden = !number;
  }
  document.title = (number ? `(${number}) ` : "") + document.title.replace(/^\(\d+\) /, "");
}

// Updates the parts of this page from a newer version. Text in fields, open menus and the focus are kept; the part of an
// open menu is updated when it closes.
function show(page) {
  const focused = document.activeElement;
  const nearbyIds = idsNear(focused.closest("[data-part] li[id]"));
  for (const part of main.querySelectorAll("[data-part]")) {
    const newPart = page.querySelector(`[data-part="${part.dataset.part}"]`);
    if (!newPart) continue;
    const menu = part.closest("details[name=menu][open]");
    if (menu) {
      menu.addEventListener("toggle", () => part.replaceChildren(...newPart.childNodes), { once: true });
      continue;
    }
    const [oldList, newList] = [part, newPart].map((version) => version.querySelector(":scope > :is(ul, ol)"));
    if (oldList && newList && overlap(oldList, newList)) merge(oldList, newList);
    else if (!isSame(part, newPart)) part.replaceChildren(...newPart.childNodes);
  }
  if (document.activeElement === focused) return;
  const neighbor = nearbyIds.map((id) => document.getElementById(id)).find(Boolean)?.querySelector("a, summary");
  (focused.isConnected ? focused : neighbor)?.focus({ preventScroll: true });
}
let showPage = show; // a page may do more, see chat.js

// Returns the ids of a list item and its neighbors, the candidates for the focus if the item is removed.
function idsNear(item) {
  if (!item) return [];
  const items = [...item.parentElement.querySelectorAll(":scope > li[id]")];
  const index = items.indexOf(item);
  return [item, items[index + 1], items[index - 1]].filter(Boolean).map(({ id }) => id);
}

function showToasts(message, error) {
  const toasts = main.querySelector(".toasts");
  const [success, failure] = [document.createElement("p"), document.createElement("p")];
  success.className = "toast success";
  success.textContent = message;
  failure.className = "toast error";
  failure.setAttribute("role", "alert");
  failure.append(Object.assign(document.createElement("strong"), { textContent: texts.error }), ` ${error}`);
  toasts.querySelector("[role=alert]")?.remove();
  toasts.querySelector("[role=status]").replaceChildren(...(message ? [success] : []));
  if (error) toasts.append(failure);
}

function closeMenu(form) {
  const menu = form.closest("details[name=menu][open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus({ preventScroll: true });
}

// A part beside the page stays open on the next page; on screens without room for it, it is a menu.
for (const details of main.querySelectorAll("[data-remember]")) {
  details.open = hasRoom.matches && readStored(details.dataset.remember) === true;
  details.addEventListener("toggle", () => hasRoom.matches && store(details.dataset.remember, details.open));
}

// Values that are kept in the browser until the user signs out. Those of another user are removed.
function readStored(name) {
  try {
    return JSON.parse(localStorage.getItem(main.dataset.storage + name));
  } catch {
    return null; // no access, or not from this page
  }
}

function store(name, value) {
  try {
    if (value) localStorage.setItem(main.dataset.storage + name, JSON.stringify(value));
    else localStorage.removeItem(main.dataset.storage + name);
  } catch {
    // no access, or no room: the page works without
  }
}

function removeStored(isRemoved) {
  try {
    for (const name of Object.keys(localStorage)) {
      if (name.startsWith("user:") && isRemoved(name)) localStorage.removeItem(name);
    }
  } catch {
    // no access
  }
}
removeStored((name) => !name.startsWith(main.dataset.storage));
document.addEventListener("submit", ({ target }) => target.matches("[action='/sign-out']") && removeStored(() => true));

// Filters of the list of chats are applied at once, and before an update of the page that was requested earlier.
let filtering = new AbortController();
document.addEventListener("change", async ({ target }) => {
  const form = target.closest("[data-filters]");
  if (!form) return;
  const address = new URL(live.dataset.url ?? location.href, location);
  for (const name of ["cursor", "done"]) address.searchParams.delete(name);
  for (const [name, value] of new FormData(form)) {
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
  }
  filtering.abort();
  filtering = new AbortController();
  const { signal } = filtering;
  sending += 1;
  try {
    const page = await fetchPage(address, { signal });
    if (signal.aborted) return;
    for (const element of page.querySelectorAll("noscript")) element.remove();
    for (const selector of [".chat-list .tabs", "[data-filters]", "[data-part=chats]", "[data-part=pagination]"]) {
      main.querySelector(selector)?.replaceChildren(...page.querySelector(selector).childNodes);
    }
    form.elements[target.name]?.focus();
    main.querySelector(".back-link")?.setAttribute("href", page.querySelector(".back-link").getAttribute("href"));
    setParameters(Object.fromEntries(new FormData(form)));
  } catch {
    if (!signal.aborted) form.submit();
  } finally {
    sending -= 1;
    responses += 1;
  }
});

// Sets query parameters in the address of this page, and on the page of a chat in all addresses of the chat.
function setParameters(values) {
  const updated = (address) => {
    const { pathname, search, hash } = new URL(address, location);
    const query = new URLSearchParams(search);
    for (const [name, value] of Object.entries(values)) {
      query.delete(name);
      if (value) query.set(name, value);
    }
    return pathname + (query.size ? `?${query}` : "") + hash;
  };
  history.replaceState(null, "", updated(location.href));
  if (live.dataset.url) live.dataset.url = updated(live.dataset.url);
  for (const name of ["action", "formaction", "href"]) {
    for (const element of main.querySelectorAll(`.conversation [${name}*="/console/chats/"]`)) {
      element.setAttribute(name, updated(element.getAttribute(name)));
    }
  }
}

// Updates a list in place from a newer version. In a chat, messages older than the new list stay.
function merge(list, newList) {
  const existing = new Map([...list.children].map((item) => [item.id || item.textContent, item]));
  const items = list.matches(".messages") ? olderThan(list, newList.querySelector("[id]").id) : [];
  const lastDay = items.findLast((item) => item.matches(".day"))?.textContent;
  const divider = list.querySelector(".unread-divider");
  for (const item of newList.children) {
    const old = existing.get(item.id || item.textContent);
    if (divider && item.matches(".unread-divider")) continue;
    if (divider && divider.nextElementSibling === old) items.push(divider);
    if (!item.id && item.textContent === lastDay) continue;
    // The first message of the new list does not continue a group there, although it does after older ones.
    const isFirst = items.at(-1)?.matches(".message") && item === newList.querySelector(".message");
    if (old && isFirst) item.className = old.className;
    items.push(old ? updated(old, item) : item);
  }
  for (const item of [...list.children]) if (!items.includes(item)) item.remove();
  let position = list.firstElementChild;
  for (const item of items) {
    if (item === position) position = position.nextElementSibling;
    else list.insertBefore(item, position);
  }
}

// Returns the new version of an item, or the old one if at most the classes and the receipt differ: its menu may be open.
function updated(old, item) {
  const [receipt, newReceipt] = [old, item].map((version) => version.querySelector("[data-receipt]"));
  if (receipt && newReceipt) receipt.textContent = newReceipt.textContent;
  const { className } = item;
  item.className = old.className;
  const isKept = isSame(old, item);
  (isKept ? old : item).className = className;
  return isKept ? old : item;
}

function overlap(list, newList) {
  const ids = new Set([...list.children].map(({ id }) => id));
  return [...newList.children].some(({ id }) => id && ids.has(id));
}

function olderThan(list, id) {
  const items = [...list.children];
  const end = items.findIndex((item) => item.id && item.id >= id);
  const older = end < 0 ? items : items.slice(0, end);
  if (older.at(-1)?.matches(".day")) older.pop();
  return older;
}

function isSame(element, other) {
  const copy = element.cloneNode(true);
  for (const details of [copy, ...copy.querySelectorAll("details")]) details.removeAttribute("open");
  return copy.isEqualNode(other);
}
