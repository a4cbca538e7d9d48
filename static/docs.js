// The API reference: Swagger UI on our own OpenAPI document, and a form that signs its reader in.
"use strict";

const form = document.getElementById("sign-in");
const trouble = document.getElementById("trouble");
const signedIn = document.getElementById("signed-in");
const place = document.getElementById("reference");
let token = "";
let reference;

// The operations with a text in their tag, method, path, summary or name; Swagger UI itself looks at tags only.
function matching(tags, text) {
  const parts = [["method"], ["path"], ["operation", "summary"], ["operation", "operationId"]];
  const words = (tag, one) => [tag, ...parts.map((part) => one.getIn(part))].join(" ").toLowerCase();
  const matches = (tag, one) => words(tag, one).includes(text.toLowerCase());
  const chosen = tags.map((group, tag) => group.update("operations", (all) => all.filter((one) => matches(tag, one))));
  return chosen.filter((group) => group.get("operations").size);
}

function filterBox(React) {
  return ({ layoutSelectors, layoutActions }) =>
    React.createElement("input", {
      type: "search",
      className: "operation-filter-input",
      placeholder: "Filter operations",
      "aria-label": "Filter operations",
      value: layoutSelectors.currentFilter() === true ? "" : layoutSelectors.currentFilter(), // true: shown, and empty
      onChange: (event) => layoutActions.updateFilter(event.target.value),
    });
}

async function describe() {
  const answer = await fetch("/docs/openapi.json");
  const described = await answer.json();
  reference = SwaggerUIBundle({
    spec: { ...described, servers: [{ url: "/" }] }, // tried where the page is from, whatever the public address
    domNode: place,
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    filter: true,
    plugins: [({ React }) => ({ fn: { opsFilter: matching }, components: { FilterContainer: filterBox(React) } })],
    tryItOutEnabled: true,
    validatorUrl: null,
    onComplete: () => show(""),
  });
}

function post(path, headers, body) {
  return fetch(`/api/v1/auth/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
}

function show(email) {
  form.hidden = Boolean(email);
  signedIn.hidden = !email;
  signedIn.querySelector("bdi").textContent = email;
}

async function signIn(event) {
  event.preventDefault();
  const { email, password } = Object.fromEntries(new FormData(form));
  const button = form.querySelector("button");
  button.disabled = true;
  trouble.textContent = "";
  try {
    const answer = await post("login", { "Content-Type": "application/json" }, { email, password });
    const { success, data, error } = await answer.json();
    if (success) {
      token = data.tokens.access_token;
      reference.preauthorizeApiKey("bearer", token);
      form.reset();
      show(data.user.email);
      signedIn.querySelector("p").focus();
    } else {
      trouble.textContent = error.message;
    }
  } catch {
    trouble.textContent = "The service did not answer.";
  }
  button.disabled = false;
}

function signOut() {
  post("logout", { Authorization: `Bearer ${token}` }).catch(() => {}); // it ends by itself, at the latest in time
  token = "";
  reference.authActions.logout(["bearer"]);
  show("");
  form.elements.email.focus();
}

// What Swagger UI leaves out for those who use the keyboard or listen to the page.
function complete() {
  for (const field of place.querySelectorAll("input, select, textarea")) {
    if (!field.labels.length && !field.ariaLabel) {
      const { paramName, propertyName } = field.closest("tr")?.dataset ?? {};
      field.ariaLabel = paramName ?? propertyName ?? "Request body";
    }
  }
  for (const table of place.querySelectorAll(".responses-table")) table.role = "table"; // not a landmark each
  for (const close of place.querySelectorAll(".close-modal")) close.ariaLabel = "Close";
  for (const link of place.querySelectorAll("button a")) link.removeAttribute("href"); // its button does the same
  for (const code of place.querySelectorAll("pre")) code.tabIndex = 0; // scrolls
}

new MutationObserver(complete).observe(place, { childList: true, subtree: true });

form.addEventListener("submit", signIn);
signedIn.querySelector("button").addEventListener("click", signOut);

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

describe().catch(() => {
  place.textContent = "The reference could not be loaded. Load the page again to try once more.";
});
