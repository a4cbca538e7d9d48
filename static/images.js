// Pictures in the composer of a chat: chosen, pasted or dropped files are uploaded at once, and sent with the message.
"use strict";

{
  const FORMATS = ["image/jpeg", "image/png", "image/webp"];
  const MAX_SIZE = 5 * 1024 * 1024; // bytes of a file
  const MAX_IMAGES = 4; // of a message
  const UPLOAD_TIMEOUT = 120_000; // milliseconds
  const MAX_ATTEMPTS = 5; // while the service is busy
  const composer = () => document.querySelector("#write:has(.attach)");
  const attached = (form) => [...form.querySelectorAll(".attached")];
  let uploads = 0; // number of running uploads

  // A file in the field is uploaded already, so it is never sent with the form.
  document.addEventListener("formdata", ({ formData }) => formData.delete("image"));

  // Opens the file dialog instead of the panel, which is for browsers without scripts.
  document.addEventListener("click", (event) => {
    const control = event.target.closest?.(".attach > summary");
    if (!control) return;
    event.preventDefault();
    const field = control.parentElement.querySelector("[type=file]");
    field.multiple = true;
    field.click();
  });
  document.addEventListener("change", ({ target }) => {
    if (!target.matches(".attach [type=file]")) return;
    const files = [...target.files];
    target.value = "";
    attach(files);
  });
  document.addEventListener("paste", (event) => {
    if (event.target.closest("#write")) attachFrom(event, event.clipboardData);
  });
  document.addEventListener("dragover", (event) => {
    if (composer() && event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  document.addEventListener("drop", (event) => attachFrom(event, event.dataTransfer));

  function attachFrom(event, { files }) {
    if (!files.length || !composer()) return;
    event.preventDefault();
    attach([...files]);
  }

  // A message is not sent during an upload.
  document.addEventListener("submit", (event) => {
    if (!uploads || event.target !== composer()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    report(texts.wait);
  }, true);

  // A message with pictures needs no text. Sending removes the pictures from the composer, and a failure restores them.
  new MutationObserver(() => {
    const field = composer()?.elements.text;
    if (field) field.required = !attached(composer()).length;
  }).observe(document.getElementById("main"), { childList: true, subtree: true });

  async function attach(files) {
    const form = composer();
    const free = MAX_IMAGES - attached(form).length;
    const problem = problemOf(files, free);
    report(problem);
    if (problem) return;
    for (const item of files.map((file) => [file, pendingItem(form)])) await upload(form, ...item);
    form.elements.text.focus({ preventScroll: true });
  }

  function problemOf(files, free) {
    if (files.length > free) return texts.tooMany;
    if (files.some(({ type }) => !FORMATS.includes(type))) return texts.wrongFormat;
    if (files.some(({ size }) => size > MAX_SIZE)) return texts.tooLarge;
    return "";
  }

  // Shows that a picture is being uploaded.
  function pendingItem(form) {
    const item = document.createElement("span");
    item.className = "attached composer-info pending";
    item.textContent = texts.uploading;
    form.prepend(...attached(form), item);
    return item;
  }

  async function upload(form, file, item) {
    uploads += 1;
    try {
      const { id, thumbnail } = await uploaded(form, file);
      complete(form, item, id, thumbnail);
      report("", texts.attached);
    } catch (error) {
      item.remove();
      report(error.message);
    } finally {
      uploads -= 1;
    }
  }

  function complete(form, item, id, thumbnail) {
    const used = attached(form).map((other) => other.querySelector("input")?.name);
    const name = Array.from({ length: MAX_IMAGES }, (_, index) => `image_${index + 1}`).find((one) => !used.includes(one));
    const field = Object.assign(document.createElement("input"), { type: "hidden", name, value: id });
    const image = Object.assign(document.createElement("img"), { src: thumbnail, alt: texts.pictureToSend });
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: texts.remove });
    button.className = "link-button";
    button.addEventListener("click", () => {
      item.remove();
      report("", texts.removed);
      form.elements.text.focus({ preventScroll: true });
    });
    item.classList.remove("pending");
    item.replaceChildren(field, image, button);
  }

  // Uploads a file; returns its identifier and its thumbnail. Raises Error with the message for the user.
  async function uploaded(form, file) {
    const address = form.querySelector(".attach [formaction]").getAttribute("formaction");
    const body = new FormData();
    for (const name of ["csrf_token", "number"]) body.set(name, form.elements[name].value);
    body.set("act", "send");
    body.set("image", file);
    const response = await request(address, body);
    if (response.headers.get("Content-Type") === "application/json") throw new Error((await response.json()).error.message);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const found = page.querySelector(".attached");
    if (!found) throw new Error(page.querySelector("[role=alert]")?.lastChild.textContent.trim() ?? texts.noUpload);
    return { id: found.querySelector("input").value, thumbnail: found.querySelector("img").src };
  }


  async function request(address, body) {
    for (let attempt = 1; ; attempt += 1) {
      const signal = AbortSignal.timeout(UPLOAD_TIMEOUT);
      const options = { method: "POST", body, signal, headers: { Accept: "text/html" } };
      const response = await fetch(address, options).catch(() => { throw new Error(texts.noUpload); });
      if (response.status !== 503 || attempt === MAX_ATTEMPTS) return response;
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    }
  }

  // Shows an error, or announces a result to screen readers.
  function report(problem, result = "") {
    const form = composer();
    form?.querySelector(".attach-error")?.remove();
    if (result) document.querySelector("[data-announcer]").textContent = result;
    if (!problem || !form) return;
    const error = Object.assign(document.createElement("p"), { textContent: problem, className: "attach-error" });
    error.setAttribute("role", "alert");
    form.prepend(error);
  }
}
