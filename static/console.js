// What the console does better with a script; everything works without one.
"use strict";

const main = document.getElementById("main");
const live = main.querySelector("[data-live]");
const isChat = main.matches(".chat");

// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  const isOfChat = isChat && main.contains(form);
  if (isOfChat || form.dataset.sent) event.preventDefault();
  if (isOfChat && form.elements.number) return send(form, event.submitter);
  if (isOfChat && !form.dataset.sent) act(form, event.submitter);
  form.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// Enter sends a message, and Shift with it begins another line, unless an input method is at work or the keyboard is on the screen.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !field.matches("textarea[data-send]")) return;
  if (matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  field.form.requestSubmit(field.form.querySelector("button[name=act]"));
});

// The composer has the focus, after the browser has scrolled to the fragment; a keyboard on the screen stays away.
window.addEventListener("load", () => {
  const field = document.querySelector("[data-focus]");
  const isAsked = /[?&](reply|edit)=/.test(location.search);
  if (isAsked || !matchMedia("(pointer: coarse)").matches) field?.focus({ preventScroll: true });
});

// What was done is announced: a text that a page begins with would not be.
const done = main.querySelector("[role=status]").textContent.trim();
if (done) setTimeout(() => (main.querySelector("[data-heard]").textContent = done), 500);

// What is open in front of a page closes when something else is pressed, or with Escape.
const menus = () => document.querySelectorAll("details[name=more][open]");
document.addEventListener("click", ({ target }) => {
  for (const menu of menus()) if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape") return;
  for (const menu of menus()) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
});
document.addEventListener("toggle", ({ target }) => {
  if (target.matches("details[name=more]:not([open])")) for (const ask of target.querySelectorAll("details")) ask.open = false;
}, true);

// Whoever sees the newest messages has read them.
function markRead() {
  const form = document.querySelector("form[data-read]");
  if (!form || form.dataset.sent || document.hidden) return;
  const body = new URLSearchParams(new FormData(form));
  body.set("act", "read");
  form.dataset.sent = "yes";
  fetch(form.action, { method: "POST", body, redirect: "manual" })
    .then(() => form.remove())
    .catch(() => delete form.dataset.sent); // the button is still there
}
const isAtEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 100;
markRead();
document.addEventListener("scroll", () => isAtEnd() && markRead(), { passive: true });

// What is new is shown while somebody looks: the server is asked what has changed, and answers when something does.
const SOON = 1_000; // milliseconds until it is asked again
const LATEST = 60_000; // where it cannot answer, or will not wait
const REFUSED = [400, 401, 403, 404]; // asking again would not help
let { after } = main.dataset;
let listening = new AbortController();

async function read(address, { signal }) {
  const answer = await fetch(address, { signal, headers: { Accept: "text/html" } });
  if (REFUSED.includes(answer.status)) after = "";
  if (!answer.ok) throw new Error(answer.status);
  return parse(await answer.text());
}

function parse(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

// The page as it is now: read again if a form was answered in the meantime, whose answer is newer.
async function readCurrent(turn) {
  for (;;) {
    const before = acts;
    const page = await read(live.dataset.page ?? location.href, turn);
    if (before === acts) return page;
  }
}

async function listen(turn) {
  for (let pause = SOON; after && !turn.signal.aborted; ) {
    const begun = performance.now();
    try {
      const address = `/console/news?${new URLSearchParams({ after, wait: 25 })}`;
      const news = (await read(address, turn)).querySelector("[data-after]").dataset;
      const changed = news.chats || news.notifications;
      showUnread(Number(news.unread));
      if (live && (live.dataset.live ? news.chats.includes(live.dataset.live) : changed)) {
        show(await readCurrent(turn));
      }
      after = news.after;
      const hasWaited = performance.now() - begun > 2 * SOON;
      pause = changed || hasWaited ? SOON : Math.min(2 * pause, LATEST);
    } catch {
      pause = Math.min(2 * pause, LATEST);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

function attend() {
  listening.abort();
  if (document.hidden) return;
  if (isAtEnd()) markRead();
  listening = new AbortController();
  listen(listening);
}
document.addEventListener("visibilitychange", attend);
attend();

function showUnread(number) {
  for (const count of document.querySelectorAll("[data-unread]")) {
    count.textContent = number < 100 ? number : "99+";
    count.parentElement.hidden = !number;
  }
  document.title = (number ? `(${number}) ` : "") + document.title.replace(/^\(\d+\) /, "");
}

// The parts of a page, from one that was made later; what is written, open or in focus stays.
function show(page) {
  const wasAtEnd = isAtEnd();
  const focused = document.activeElement;
  const near = nearby(focused.closest("[data-part] li[id]"));
  const last = [...main.querySelectorAll(".message")].at(-1)?.id ?? "";
  const heard = [...page.querySelectorAll(".message:not(.own)")].filter(({ id }) => id > last).slice(-3);
  const said = heard.map((one) => [".from", ".words"].map((name) => one.querySelector(name)?.textContent).join(": "));
  if (said.length) main.querySelector("[data-heard]").textContent = said.join("\n");
  for (const part of main.querySelectorAll("[data-part]")) {
    const fresh = page.querySelector(`[data-part="${part.dataset.part}"]`);
    const [old, list] = [part, fresh].map((one) => one.querySelector(":scope > :is(ul, ol)"));
    if (old && list && overlap(old, list)) merge(old, list);
    else if (!isSame(part, fresh)) part.replaceChildren(...fresh.childNodes);
  }
  const [composer, other] = [main, page].map((one) => one.querySelector(".composer"));
  const isWritten = composer?.querySelector("textarea")?.value;
  if (composer?.tagName !== other?.tagName && !isWritten) composer.replaceWith(other);
  if (document.activeElement !== focused) {
    const again = near.map((id) => document.getElementById(id)).find(Boolean)?.querySelector("a, summary");
    (focused.isConnected ? focused : again ?? writing())?.focus({ preventScroll: true });
  }
  carryNote(); // the choice may have changed since the page was asked for
  if (isChat && wasAtEnd) goToEnd();
}

// The identifiers of a list item and of those beside it, of which one has the focus when it is gone.
function nearby(item) {
  if (!item) return [];
  const all = [...item.parentElement.querySelectorAll(":scope > li[id]")];
  const place = all.indexOf(item);
  return [item, all[place + 1], all[place - 1]].filter(Boolean).map(({ id }) => id);
}

function goToEnd() {
  scrollTo({ top: document.documentElement.scrollHeight });
  markRead();
}

// A form of a chat is sent without leaving the page: the reader's place, the focus and what is typed meanwhile stay.
const ANSWER_TIME = 30_000; // milliseconds
const NO_ANSWER = "The service did not answer. Try again.";
const writing = () => main.querySelector(".composer textarea");
let acts = 0; // how many were answered

// Messages that were written, in their order; the first is on its way.
const waiting = [];

function send(form, button) {
  const field = form.elements.text;
  const about = [...form.querySelectorAll("[name=reply], .about:not(.in-note)")];
  waiting.push({ text: field.value, about, form, body: new URLSearchParams(new FormData(form, button)) });
  for (const one of about) one.remove();
  field.value = "";
  field.focus({ preventScroll: true });
  form.elements.number.value = newNumber();
  if (waiting.length === 1) sendWaiting();
}

async function sendWaiting() {
  while (waiting.length) {
    const { form, body } = waiting[0];
    const { page, trouble } = await post(form.getAttribute("action"), body);
    if (trouble) return giveBack(page);
    waiting.shift();
    show(page);
    stayAt(page);
    goToEnd();
  }
}

// What could not be sent is in the composer again; the same number, so that nothing is sent twice, unless it was used.
function giveBack(page) {
  const field = writing();
  const unsent = waiting.splice(0);
  if (!field) return;
  if (!page && unsent.length === 1 && !field.value) field.form.elements.number.value = unsent[0].body.get("number");
  field.form.prepend(...unsent[0].about);
  field.value = [...unsent.map(({ text }) => text), field.value].filter(Boolean).join("\n");
}

function newNumber() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function act(form, button) {
  const field = form.querySelector("textarea");
  const body = new URLSearchParams(new FormData(form, button));
  closeMenu(form);
  const { page, trouble } = await post(form.getAttribute("action"), body);
  delete form.dataset.sent;
  if (trouble) return;
  show(page);
  if (!field) return;
  stayAt(page);
  form.replaceWith(page.querySelector(".composer"));
  writing()?.focus({ preventScroll: true });
}

function stayAt(page) {
  live.dataset.page = page.querySelector("[data-live]").dataset.page;
  history.replaceState(null, "", live.dataset.page);
  carryNote();
}

// The page that answers a form, and what did not work, which is told.
async function post(address, body) {
  const { page, trouble } = await answerOf(address, body);
  acts += 1;
  tell(page?.querySelector("[role=status]").textContent.trim(), trouble);
  const ticket = page?.querySelector("[name=ticket]")?.value;
  if (ticket) for (const one of main.querySelectorAll("[name=ticket]")) one.value = ticket;
  return { page, trouble };
}

async function answerOf(address, body) {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIME);
    const answer = await fetch(address, { method: "POST", body, signal, headers: { Accept: "text/html" } });
    if (answer.status === 401) return { trouble: "You are signed out. Sign in again in another tab, then try again." };
    if (answer.headers.get("Content-Type") === "application/json") return { trouble: (await answer.json()).error.message };
    const page = parse(await answer.text());
    if (!page.querySelector("main.chat")) return { trouble: page.querySelector("[role=alert]")?.textContent ?? NO_ANSWER };
    return { page, trouble: page.querySelector("[role=alert]")?.lastChild.textContent.trim() };
  } catch {
    return { trouble: NO_ANSWER };
  }
}

function tell(done, trouble) {
  const toasts = main.querySelector(".toasts");
  const [said, failed] = [document.createElement("p"), document.createElement("p")];
  said.className = "told done";
  said.textContent = done;
  failed.className = "told trouble";
  failed.setAttribute("role", "alert");
  failed.append(Object.assign(document.createElement("strong"), { textContent: "That did not work." }), ` ${trouble}`);
  toasts.querySelector("[role=alert]")?.remove();
  toasts.querySelector("[role=status]").replaceChildren(...(done ? [said] : []));
  if (trouble) toasts.append(failed);
}

function closeMenu(form) {
  const menu = form.closest("details[name=more][open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus({ preventScroll: true });
}

// Whether the composer writes a private note: every address of the page says so, so that it stays wherever they lead.
main.addEventListener("change", ({ target }) => target.name === "is_private" && carryNote());

function carryNote() {
  const choice = main.querySelector(".composer [name=is_private]");
  if (!choice) return;
  const changed = (address) => {
    const { pathname, search, hash } = new URL(address, location);
    const query = new URLSearchParams(search);
    query.delete("note");
    if (choice.checked) query.set("note", "true");
    return pathname + (query.size ? `?${query}` : "") + hash;
  };
  history.replaceState(null, "", changed(location.href));
  live.dataset.page = changed(live.dataset.page);
  for (const name of ["action", "href"]) {
    for (const one of main.querySelectorAll(`[${name}*="/console/chats/"]`)) one.setAttribute(name, changed(one.getAttribute(name)));
  }
}

// Of a chat, the page shows messages that are older than all of the fresh ones: they stay where they are.
function merge(list, fresh) {
  const known = new Map([...list.children].map((one) => [one.id || one.textContent, one]));
  const next = list.matches(".talk") ? olderThan(list, fresh.querySelector("[id]").id) : [];
  const day = next.findLast((one) => one.matches(".day"))?.textContent;
  for (const one of fresh.children) {
    const same = known.get(one.id || one.textContent);
    if (!one.id && one.textContent === day) continue;
    next.push(same && isSame(same, one) ? same : one);
  }
  for (const one of [...list.children]) if (!next.includes(one)) one.remove();
  let place = list.firstElementChild;
  for (const one of next) {
    if (one === place) place = place.nextElementSibling;
    else list.insertBefore(one, place);
  }
}

function overlap(list, fresh) {
  const known = new Set([...list.children].map(({ id }) => id));
  return [...fresh.children].some(({ id }) => id && known.has(id));
}

function olderThan(list, id) {
  const all = [...list.children];
  const end = all.findIndex((one) => one.id && one.id >= id);
  const older = end < 0 ? all : all.slice(0, end);
  if (older.at(-1)?.matches(".day")) older.pop();
  return older;
}

function isSame(one, other) {
  const copy = one.cloneNode(true);
  for (const menu of [copy, ...copy.querySelectorAll("details")]) menu.removeAttribute("open");
  return copy.isEqualNode(other);
}
