// Canned replies in the composer: after a slash, a list of those whose shortcut begins with the text.
"use strict";

{
  const DELAY = 100; // milliseconds after the last key
  const PREVIEW = 120; // characters
  const list = () => document.getElementById("canned-replies");
  const field = () => document.querySelector("#write textarea[data-draft]");
  const options = () => [...list().children];
  const selected = () => list().querySelector("[aria-selected=true]");
  let request = new AbortController();

  main.addEventListener("input", ({ target }) => list() && target === field() && update());
  main.addEventListener("focusout", ({ target }) => list() && target === field() && close());
  document.addEventListener("keydown", handleKey, true);
  main.addEventListener("pointerdown", (event) => {
    if (event.target.closest("#canned-replies")) event.preventDefault(); // keeps the focus in the field
  });
  main.addEventListener("click", async (event) => {
    if (event.target.closest("#canned-replies")) return insert(event.target.closest("[role=option]"));
    const link = event.target.closest("[data-canned-replies]");
    if (!link) return;
    event.preventDefault();
    const isEmpty = !field().value;
    if (isEmpty) field().value = "/";
    field().focus();
    const isShown = await update();
    if (!isShown || !isEmpty || field().value !== "/" || options().length) return;
    field().value = ""; // there is none yet
    location.assign(link.href);
  });

  // Shows the list for the text. Returns whether it was read.
  async function update() {
    const prefix = /^\/(\S*)$/.exec(field().value)?.[1];
    request.abort();
    if (prefix === undefined) return void close();
    request = new AbortController();
    const { signal } = request;
    await pause(DELAY);
    if (signal.aborted) return;
    const address = new URL(list().dataset.url, location);
    address.searchParams.set("prefix", prefix);
    try {
      show(await fetchPage(address, { signal }));
      return true;
    } catch {
      if (!signal.aborted) close();
    }
  }

  function show(page) {
    list().replaceChildren(...[...page.querySelectorAll("[data-canned-reply]")].map(optionOf));
    list().hidden = !list().children.length;
    field().setAttribute("aria-controls", list().id);
    select(options()[0]);
  }

  function optionOf(item) {
    const option = document.createElement("li");
    const shortcut = Object.assign(document.createElement("strong"), { textContent: item.querySelector("h2").textContent });
    option.id = `canned-${item.dataset.cannedReply}`;
    option.setAttribute("role", "option");
    option.dataset.text = item.querySelector(".text").textContent;
    option.append(shortcut, ` ${option.dataset.text.slice(0, PREVIEW)}`);
    return option;
  }

  function select(option) {
    for (const other of options()) other.setAttribute("aria-selected", String(other === option));
    field().setAttribute("aria-activedescendant", option?.id ?? "");
    option?.scrollIntoView({ block: "nearest" });
  }

  function close() {
    request.abort();
    list().hidden = true;
    list().replaceChildren();
    field()?.removeAttribute("aria-activedescendant");
  }

  function insert(option) {
    if (!option) return;
    field().value = option.dataset.text;
    close();
    field().dispatchEvent(new Event("input", { bubbles: true }));
  }

  function handleKey(event) {
    if (!list() || list().hidden || event.target !== field() || event.isComposing) return;
    const index = options().indexOf(selected());
    const actions = {
      ArrowDown: () => select(options()[(index + 1) % options().length]),
      ArrowUp: () => select(options().at(index - 1)),
      Enter: () => insert(selected()),
      Tab: () => insert(selected()),
      Escape: close,
    };
    if (!Object.hasOwn(actions, event.key) || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }
}
