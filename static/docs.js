// The API reference: Swagger UI on the OpenAPI document of this service, with a sign-in form.
"use strict";

const form = document.getElementById("sign-in");
const formError = document.getElementById("form-error");
const signedIn = document.getElementById("signed-in");
const container = document.getElementById("reference");
let token = "";
let reference;

// Returns the operations whose tag, method, path, summary or operationId contains a text. Swagger UI searches tags only.
function filterOperations(tags, text) {
  const fields = [["method"], ["path"], ["operation", "summary"], ["operation", "operationId"]];
  const searchText = (tag, operation) => [tag, ...fields.map((field) => operation.getIn(field))].join(" ").toLowerCase();
  const matches = (tag, operation) => searchText(tag, operation).includes(text.toLowerCase());
  const filtered = tags.map((group, tag) =>
    group.update("operations", (all) => all.filter((operation) => matches(tag, operation))),
  );
  return filtered.filter((group) => group.get("operations").size);
}

function filterBox(React) {
  return ({ layoutSelectors, layoutActions }) =>
    React.createElement("div", { role: "search" }, React.createElement("input", {
      type: "search",
      className: "operation-filter-input",
      placeholder: "Filter operations",
      "aria-label": "Filter operations",
      value: layoutSelectors.currentFilter() === true ? "" : layoutSelectors.currentFilter(), // true: the box is shown and empty
      onChange: (event) => layoutActions.updateFilter(event.target.value),
    }));
}

// Whether a part is open: all groups are while there is a filter. The original selector gets the state by itself.
const isShown = (original) => (state, part, initially) => {
  const filter = state.get("filter"); // true: the box is shown and empty
  return (part[0] === "operations-tag" && Boolean(filter) && filter !== true) || original(part, initially);
};

async function load() {
  const response = await fetch("/docs/openapi.json?pages=true");
  const openapi = await response.json();
  reference = SwaggerUIBundle({
    spec: { ...openapi, servers: [{ url: "/" }] }, // send requests to the origin of the page, not to the public URL
    domNode: container,
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    filter: true,
    docExpansion: "none",
    plugins: [
      ({ React }) => ({
        fn: { opsFilter: filterOperations },
        components: { FilterContainer: filterBox(React) },
        statePlugins: { layout: { wrapSelectors: { isShown } } },
      }),
    ],
    tryItOutEnabled: true,
    validatorUrl: null,
    onComplete: () => showUser(""),
  });
}

function post(path, headers, body) {
  return fetch(`/api/v1/auth/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
}

function showUser(email) {
  form.hidden = Boolean(email);
  signedIn.hidden = !email;
  signedIn.querySelector("bdi").textContent = email;
}

async function signIn(event) {
  event.preventDefault();
  const { email, password } = Object.fromEntries(new FormData(form));
  const button = form.querySelector("button");
  button.disabled = true;
  formError.textContent = "";
  try {
    const response = await post("login", { "Content-Type": "application/json" }, { email, password });
    const { success, data, error } = await response.json();
    if (success) {
      token = data.tokens.access_token;
      reference.preauthorizeApiKey("bearer", token);
      form.reset();
      showUser(data.user.email);
      signedIn.querySelector("p").focus();
    } else {
      formError.textContent = error.message;
    }
  } catch {
    formError.textContent = "The service did not respond.";
  }
  button.disabled = false;
}

function signOut() {
  post("logout", { Authorization: `Bearer ${token}` }).catch(() => {}); // an error is ignored: the session expires by itself
  token = "";
  reference.authActions.logout(["bearer"]);
  showUser("");
  form.elements.email.focus();
}

// Adds labels and roles that Swagger UI lacks, for keyboards and screen readers.
function improveAccessibility() {
  for (const field of container.querySelectorAll("input, select, textarea")) {
    if (!field.labels.length && !field.ariaLabel) {
      const { paramName, propertyName } = field.closest("tr")?.dataset ?? {};
      field.ariaLabel = paramName ?? propertyName ?? "Request body";
    }
  }
  for (const table of container.querySelectorAll(".responses-table")) table.role = "table"; // not a landmark
  for (const button of container.querySelectorAll(".opblock-tag .expand-operation")) {
    button.ariaLabel = `Operations: ${button.closest(".opblock-tag").dataset.tag}`;
  }
  for (const close of container.querySelectorAll(".close-modal")) close.ariaLabel = "Close";
  for (const link of container.querySelectorAll("button a")) link.removeAttribute("href"); // the enclosing button has the same effect
  for (const code of container.querySelectorAll("pre")) code.tabIndex = 0; // scrollable with the keyboard
}

new MutationObserver(improveAccessibility).observe(container, { childList: true, subtree: true });

form.addEventListener("submit", signIn);
signedIn.querySelector("button").addEventListener("click", signOut);

const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");
const applyColorScheme = () => document.documentElement.classList.toggle("dark-mode", darkScheme.matches);
darkScheme.addEventListener("change", applyColorScheme);
applyColorScheme();

load().catch(() => {
  container.textContent = "The API reference could not be loaded. Reload the page to try again.";
});
