// Keyboard shortcuts of the console. The dialog lists them and turns them off.
"use strict";

{
  const dialog = document.getElementById("shortcuts");
  const checkbox = dialog.querySelector("[type=checkbox]");
  const STORED = "shortcuts"; // in the browser, because it is about this keyboard

  checkbox.checked = read() !== "off";
  checkbox.addEventListener("change", () => write(checkbox.checked ? "on" : "off"));
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  for (const control of document.querySelectorAll("[data-shortcuts]")) {
    control.hidden = false;
    control.addEventListener("click", () => dialog.showModal());
  }

  function read() {
    try {
      return localStorage.getItem(STORED);
    } catch {
      return null;
    }
  }

  function write(value) {
    try {
      localStorage.setItem(STORED, value);
    } catch {
      // no access to the storage: until the next page
    }
  }

  const press = (selector) => document.querySelector(selector)?.click();
  const focus = (selector) => document.querySelector(selector)?.focus();

  // Moves to the next or previous chat: opens it beside an open chat, and otherwise focuses it.
  function move(step) {
    const links = [...document.querySelectorAll(".chats a")];
    const current = links.findIndex((link) => link.matches(":focus, [aria-current]"));
    const next = links[current < 0 ? 0 : current + step];
    if (next?.closest("main.chat")) next.click();
    else next?.focus();
  }

  function writeNote() {
    const field = document.querySelector(".composer [name=is_private]");
    if (field && !field.checked) field.click();
    focus(".composer textarea");
  }

  const ACTIONS = {
    "/": () => press("#navigation a[href='/console/search']"),
    "?": () => dialog.showModal(),
    e: () => press("[data-shortcut=e]"),
    j: () => move(1),
    k: () => move(-1),
    n: writeNote,
    r: () => focus(".composer textarea"),
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return;
    const action = Object.hasOwn(ACTIONS, event.key) && ACTIONS[event.key];
    if (!action || !checkbox.checked || document.querySelector("dialog[open], :popover-open")) return;
    event.preventDefault();
    action();
  });
}
