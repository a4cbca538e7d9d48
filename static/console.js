// What the console does better with a script; everything works without one.
"use strict";

// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
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

// Whoever answers or edits a message writes next, while the page shows what it is about: once it was brought into view.
window.addEventListener("load", () => document.querySelector("[data-focus]")?.focus({ preventScroll: true }));

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
const main = document.getElementById("main");
const live = main.querySelector("[data-live]");
const REFUSED = [400, 401, 403, 404]; // asking again would not help
let { after } = main.dataset;
let listening = new AbortController();

async function read(address, { signal }) {
  const answer = await fetch(address, { signal, headers: { Accept: "text/html" } });
  if (REFUSED.includes(answer.status)) after = "";
  if (!answer.ok) throw new Error(answer.status);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
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
        show(await read(live.dataset.page ?? location.href, turn));
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
  const holder = focused.closest("[data-part] li[id]");
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
    const again = holder && document.getElementById(holder.id)?.querySelector("a, summary");
    (focused.isConnected ? focused : again)?.focus({ preventScroll: true });
  }
  if (!main.matches(".chat") || !wasAtEnd) return;
  scrollTo({ top: document.documentElement.scrollHeight });
  markRead();
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
