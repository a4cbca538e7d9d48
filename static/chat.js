// The page of a chat: forms are sent without leaving the page, so that the scroll position, the focus and text are kept.
"use strict";

const RESPONSE_TIMEOUT = 30_000; // milliseconds
const conversation = main.querySelector(".conversation");
const composerField = () => main.querySelector(".composer textarea");
const messageList = () => main.querySelector(".messages");

// A reload, and the way back, keep the position of the reader. `autofocus` of the end would scroll there, before this or
// after it; it has no effect when an element has the focus.
const positionName = () => `position in ${location.href}`;
addEventListener("pagehide", () => sessionStorage.setItem(positionName(), scrollY));
const isNew = performance.getEntriesByType("navigation")[0]?.type === "navigate";
const position = isNew ? null : sessionStorage.getItem(positionName());
if (position !== null) {
  document.getElementById("end").focus({ preventScroll: true });
  scrollTo({ top: position, behavior: "instant" });
}

main.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || "opensPage" in form.dataset) return;
  event.preventDefault();
  if (event.submitter?.matches("[data-suggest]")) suggest(form, event.submitter);
  else if (form.elements.number) send(form, event.submitter);
  else if (!form.dataset.submitted) submitAction(form, event.submitter);
});

// Enter sends a message and Shift+Enter starts a new line, except with an input method editor or an on-screen keyboard.
document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || !field.matches("textarea[data-send]")) return;
  if (event.defaultPrevented || matchMedia("(pointer: coarse)").matches) return;
  event.preventDefault();
  field.form.requestSubmit(field.form.querySelector("button[name=act]"));
});

// Focuses the composer after the browser has scrolled to the fragment, or to the end; on touch screens only for a reply or
// an edit, so that the on-screen keyboard does not open. A busy browser may not have drawn the page yet: then it has not
// scrolled to the end by `autofocus`, and would not do it after this focus.
addEventListener("load", () => {
  const isOpened = position === null && document.getElementById("end").autofocus;
  if (isOpened && document.activeElement === document.body) goToEnd();
  const field = document.querySelector("[data-focus]");
  const isRequested = /[?&](reply|edit|canned)=/.test(location.search);
  if (isRequested || !matchMedia("(pointer: coarse)").matches) field?.focus({ preventScroll: true });
});

// Marks the chat as read when its newest messages are visible, and before that as delivered.
function markRead() {
  const form = document.querySelector("form[data-mark-read]");
  if (!form || form.dataset.submitted || document.hidden) return;
  form.dataset.submitted = "yes";
  submitMark(form, "read")
    .then(() => form.remove())
    .catch(() => delete form.dataset.submitted); // the button remains
}
let deliveredId = "";
function markDelivered() {
  const form = document.querySelector("form[data-mark-read]");
  const id = form?.elements.message.value;
  if (!id || id === deliveredId || form.dataset.submitted) return;
  deliveredId = id;
  submitMark(form, "delivered").catch(() => (deliveredId = ""));
}
function submitMark(form, act) {
  const body = new URLSearchParams(new FormData(form));
  body.set("act", act);
  return fetch(form.action, { method: "POST", body, redirect: "manual" });
}
const isAtEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 100;
const onReadingEnd = () => {
  if (!isAtEnd()) return;
  markRead();
  countNew(-newMessages);
};
document.addEventListener("scroll", onReadingEnd, { passive: true });

// Stays at the end when the window or the composer changes its size, and when a picture is loaded, but not if the page
// was scrolled meanwhile.
let endPosition = null;
for (const type of ["scroll", "load"]) {
  addEventListener(type, () => (endPosition = isAtEnd() ? scrollY : null), { passive: true });
}
const stayAtEnd = () => scrollY === endPosition && goToEnd();
addEventListener("resize", stayAtEnd);
new ResizeObserver(stayAtEnd).observe(main);

document.addEventListener("visibilitychange", () => !document.hidden && onReadingEnd());

function goToEnd() {
  scrollTo({ top: document.documentElement.scrollHeight });
  onReadingEnd();
}

// New messages below the visible part of the page are counted on a button that scrolls to them.
let newMessages = 0;
const newMessagesButton = main.querySelector("[data-new-messages]");
newMessagesButton.addEventListener("click", goToEnd);

function countNew(number) {
  newMessages += number;
  newMessagesButton.hidden = !newMessages;
  const { one, many } = newMessagesButton.dataset;
  newMessagesButton.querySelector("span").textContent = newMessages === 1 ? one : many.replace("{count}", newMessages);
}

// Updates the page from a newer version.
showPage = (page) => {
  const wasAtEnd = isAtEnd();
  const hadFocus = document.activeElement !== document.body;
  const added = messagesAdded(page);
  if (added.length) hideTyping();
  announce(added);
  if (wasAtEnd && !document.hidden) page.querySelector(".unread-divider")?.remove(); // they are read already
  show(page);
  for (const message of [...unsent]) {
    if (message !== running && isStored(message, page)) removeUnsent(message);
    else showUnsent(message.item);
  }
  if (added.some((message) => message.matches(".bot"))) removeDraft();
  else if (draft) showDraft(draft);
  const [composer, newComposer] = [main, page].map((version) => version.querySelector(".composer"));
  const hasText = composer?.querySelector("textarea")?.value;
  if (composer?.tagName !== newComposer?.tagName && !hasText) composer.replaceWith(newComposer);
  if (hadFocus && document.activeElement === document.body) composerField()?.focus({ preventScroll: true });
  updateParameters(); // the choice may have changed since the request
  if (wasAtEnd) goToEnd();
  else countNew(added.length);
  markDelivered();
};

// Returns whether a page shows a message that the service has stored: by the number of its form.
function isStored({ body }, page) {
  return Boolean(page.querySelector(`[data-number="${CSS.escape(body.get("number"))}"]`));
}

// Returns the new messages of others.
function messagesAdded(page) {
  const lastId = [...main.querySelectorAll(".message[id]")].at(-1)?.id ?? "";
  return [...page.querySelectorAll(".message:not(.own)")].filter(({ id }) => id > lastId);
}

// Announces up to three messages to screen readers.
function announce(messages) {
  const textOf = (message) => [".sender", ".text"].map((name) => message.querySelector(name)?.textContent).join(": ");
  if (messages.length) main.querySelector("[data-announcer]").textContent = messages.slice(-3).map(textOf).join("\n");
}

// Older messages are added above those on the page.
main.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-older] a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (link.ariaBusy === "true") return;
  link.ariaBusy = "true";
  try {
    addOlder(await fetchPage(link.href, new AbortController()), link.closest("[data-older]"));
  } catch {
    location.assign(link.href);
  }
});

function addOlder(page, navigation) {
  const first = messageList().querySelector(".message");
  const top = first.getBoundingClientRect().top;
  const items = [...page.querySelector(".messages").children].filter(({ id }) => !id || !document.getElementById(id));
  const days = items.filter((item) => item.matches(".day")).map(({ textContent }) => textContent);
  const firstDay = messageList().querySelector(".day");
  if (days.at(-1) === firstDay?.textContent) firstDay.remove();
  messageList().prepend(...items);
  const next = page.querySelector("[data-older]");
  if (next) navigation.replaceChildren(...next.childNodes);
  else navigation.remove();
  scrollBy({ top: first.getBoundingClientRect().top - top, behavior: "instant" });
  if (document.activeElement === document.body) first.querySelector("summary")?.focus({ preventScroll: true });
}

// Shows for some seconds that the other side is typing, or until its message arrives.
const TYPING_SHOWN = 6_000; // milliseconds
const TYPING_INTERVAL = 3_000; // between two indicators of this user
const typingIndicator = () => main.querySelector("[data-typing-indicator]"); // only beside the composer of a new message
let typingTimer;

addEventListener("typing", ({ detail }) => {
  const types = typingIndicator()?.dataset.typingIndicator.split(" ");
  if (detail.chat_session_id !== live.dataset.live || !types?.includes(detail.sender_type)) return;
  typingIndicator().hidden = false;
  clearTimeout(typingTimer);
  typingTimer = setTimeout(hideTyping, TYPING_SHOWN);
});

function hideTyping() {
  clearTimeout(typingTimer);
  if (typingIndicator()) typingIndicator().hidden = true;
}

// Tells the other side that this user is typing; not of private notes.
let lastTyping = -TYPING_INTERVAL;
main.addEventListener("input", ({ target }) => {
  const form = target.form;
  if (!target.matches("textarea[data-draft]") || !target.value || form.elements.is_private?.checked) return;
  if (performance.now() - lastTyping < TYPING_INTERVAL) return;
  lastTyping = performance.now();
  const body = new URLSearchParams({ csrf_token: csrfToken(), act: "typing" });
  fetch(live.dataset.url, { method: "POST", body, redirect: "manual" }).catch(() => {});
});
// The reply that a bot is writing, at the end of the chat, until its message is there. The event that ends it may be lost.
const DRAFT_KEPT = { writing: 20_000, stored: 5_000 }; // milliseconds after an event with this status
let draft = null;
let draftTimer;

addEventListener("draft", ({ detail: { chat_session_id: id, status, text } }) => {
  if (id !== live.dataset.live) return;
  clearTimeout(draftTimer);
  if (status === "writing") showDraft(text);
  if (status === "withdrawn") removeDraft();
  else draftTimer = setTimeout(removeDraft, DRAFT_KEPT[status]);
});

function showDraft(text) {
  const wasAtEnd = isAtEnd();
  let item = main.querySelector(".message.draft");
  if (!item) item = document.getElementById("draft-message")?.content.firstElementChild.cloneNode(true);
  if (!item) return; // the newest messages are on another page
  draft = text;
  item.querySelector(".text").textContent = text;
  showUnsent(item);
  if (wasAtEnd) goToEnd();
}

function removeDraft() {
  draft = null;
  main.querySelector(".message.draft")?.remove();
}

// Messages that the service has not confirmed, in order. They are shown at the end of the chat and kept in the browser.
const unsent = [];
let running; // the one whose request is running

function send(form, button) {
  const field = form.elements.text;
  const details = [...form.querySelectorAll("[name=reply], .composer-info:not(.if-private)")];
  addUnsent({ text: field.value, details, body: new URLSearchParams(new FormData(form, button)) });
  for (const element of details) element.remove();
  field.value = "";
  setOptions(form, new URLSearchParams());
  field.focus({ preventScroll: true });
  form.elements.number.value = newNumber();
  saveText();
  main.querySelector(".unread-divider")?.remove();
  goToEnd();
  sendNext();
}

// Shows a message: { text, body, details: elements of the composer, failed: whether it waits for another attempt }.
// An attempt has the same number as those before, so that the service stores the message once.
function addUnsent(message) {
  const item = document.getElementById("unsent-message").content.firstElementChild.cloneNode(true);
  item.querySelector(".text").textContent = message.text;
  item.classList.toggle("private", message.body.has("is_private"));
  item.querySelector(".unsent-images").hidden = !message.body.has("image_1");
  item.querySelector("[data-retry]").addEventListener("click", sendAgain);
  item.querySelector("[data-edit]").addEventListener("click", () => editUnsent(message));
  message.item = item;
  unsent.push(message);
  showFailed(message, Boolean(message.failed));
  showUnsent(item);
}

function showUnsent(item) {
  if (!messageList()) {
    const list = Object.assign(document.createElement("ol"), { className: "messages", id: "start" });
    main.querySelector("[data-part=messages]").replaceChildren(list);
  }
  messageList().append(item);
}

function showFailed(message, failed) {
  message.failed = failed;
  message.item.classList.toggle("failed", failed);
  saveUnsent();
}

async function sendNext() {
  const message = unsent.find(({ failed }) => !failed);
  if (running || !message) return;
  running = message;
  message.body.set("csrf_token", csrfToken());
  const { page, error } = await post(live.dataset.url, message.body);
  running = null;
  if (error && !page) for (const one of unsent) showFailed(one, true);
  else removeUnsent(message);
  if (page && error) restoreInComposer(message);
  if (page && !error) {
    showPage(page);
    updateAddress(page);
    goToEnd();
  }
  if (!error || page) sendNext();
}

function sendAgain() {
  showToasts("", "");
  for (const message of unsent) showFailed(message, false);
  sendNext();
}
addEventListener("reconnected", () => unsent.length && sendAgain());

// Puts a message that was not sent back into the composer.
function editUnsent(message) {
  removeUnsent(message);
  restoreInComposer(message);
}

// Sets the options of the message in the composer, and hides their panel.
function setOptions(form, body) {
  const { buttons, is_read_once: readOnce } = form.elements;
  if (buttons) buttons.value = body.get("buttons") ?? "";
  readOnce.checked = body.has("is_read_once");
  readOnce.closest("details").open = false;
}

function restoreInComposer({ text, details, body }) {
  const field = composerField();
  if (!field) return;
  field.form.prepend(...details);
  field.value = [text, field.value].filter(Boolean).join("\n");
  if (body.get("buttons") || body.has("is_read_once")) setOptions(field.form, body);
  field.focus({ preventScroll: true });
  saveText();
}

function removeUnsent(message) {
  unsent.splice(unsent.indexOf(message), 1);
  message.item.remove();
  saveUnsent();
}

function newNumber() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The text of the composer and the messages that are not confirmed are kept in the browser.
const textName = `text:${live.dataset.live}`;
const unsentName = `unsent:${live.dataset.live}`;

function saveText() {
  const field = document.querySelector("#write textarea[data-draft]");
  if (field) store(textName, field.value);
}

function saveUnsent() {
  const messages = unsent.map(({ text, body }) => ({ text, body: withoutToken(body) }));
  store(unsentName, messages.length && messages);
}

function withoutToken(body) {
  const copy = new URLSearchParams(body);
  copy.delete("csrf_token");
  return copy.toString();
}

main.addEventListener("input", ({ target }) => target.matches("textarea[data-draft]") && saveText());

for (const { text, body } of readStored(unsentName) ?? []) {
  const message = { text, details: [], body: new URLSearchParams(body), failed: true };
  if (!isStored(message, main)) addUnsent(message);
}
saveUnsent();
const draftField = document.querySelector("#write textarea[data-draft]");
const isCanned = new URLSearchParams(location.search).has("canned"); // added to the text, and once only
if (draftField && (isCanned || !draftField.value)) {
  draftField.value = [readStored(textName), draftField.value].filter(Boolean).join("\n");
  saveText();
}
setParameters({ canned: "" });

async function submitAction(form, button) {
  const isComposer = form.matches(".composer");
  const body = new URLSearchParams(new FormData(form, button));
  form.dataset.submitted = "yes";
  closeMenu(form);
  if (button?.value === "translate") showToasts(texts.translating, "");
  const { page, error } = await post(form.getAttribute("action"), body);
  delete form.dataset.submitted;
  if (error) return;
  showPage(page);
  if (!isComposer) return;
  updateAddress(page);
  form.replaceWith(page.querySelector(".composer"));
  composerField()?.focus({ preventScroll: true });
}

// Adds a draft of the assistant to the text, which may change meanwhile.
async function suggest(form, button) {
  const body = new URLSearchParams(new FormData(form, button));
  body.set("text", "");
  button.disabled = true;
  const { page, error } = await post(button.getAttribute("formaction"), body);
  button.disabled = false;
  const field = composerField();
  if (error || !field) return;
  field.value = [field.value, page.querySelector(".composer textarea").value].filter(Boolean).join("\n\n");
  saveText();
  field.focus();
}

function updateAddress(page) {
  live.dataset.url = page.querySelector("[data-live]").dataset.url;
  history.replaceState(null, "", live.dataset.url);
  updateParameters();
}

const csrfToken = () => main.querySelector("[name=csrf_token]").value;

// Sends a form; returns the page of the response and the error message, if any, and shows the result.
async function post(address, body) {
  sending += 1;
  const { page, error } = await responseTo(address, body);
  sending -= 1;
  responses += 1;
  showToasts(page?.querySelector("[role=status]").textContent.trim(), error);
  const token = page?.querySelector("[name=csrf_token]")?.value;
  if (token) for (const field of main.querySelectorAll("[name=csrf_token]")) field.value = token;
  return { page, error };
}

async function responseTo(address, body) {
  try {
    const signal = AbortSignal.timeout(RESPONSE_TIMEOUT);
    const response = await fetch(address, { method: "POST", body, signal, headers: { Accept: "text/html" } });
    if (response.status === 401) return { error: texts.signedOut };
    if (response.headers.get("Content-Type") === "application/json") return { error: (await response.json()).error.message };
    const page = parse(await response.text());
    if (!page.querySelector("main.chat")) return { error: page.querySelector("[role=alert]")?.textContent ?? texts.noResponse };
    return { page, error: page.querySelector("[role=alert]")?.lastChild.textContent.trim() };
  } catch {
    return { error: texts.noResponse };
  }
}

// Keeps the choices "Private note" and "Send in" a language in all addresses of the page, as query parameters.
const CHOICES = { note: "is_private", translate_to: "translate_to" }; // parameters, and the names of their checkboxes
main.addEventListener("change", ({ target }) => Object.values(CHOICES).includes(target.name) && updateParameters());

function updateParameters() {
  for (const [parameter, name] of Object.entries(CHOICES)) {
    const checkbox = main.querySelector(`.composer [name=${name}]`);
    if (checkbox) setParameters({ [parameter]: checkbox.checked ? checkbox.value : "" });
  }
}

onReadingEnd();
markDelivered();
