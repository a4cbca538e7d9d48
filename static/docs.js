// The API reference: Swagger UI on our own OpenAPI document, and a form that signs its reader in.
"use strict";

const reference = SwaggerUIBundle({
  url: "/docs/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  docExpansion: "list",
  tryItOutEnabled: true,
  validatorUrl: null,
});

const form = document.getElementById("sign-in");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const told = form.querySelector("output");
  const { email, password } = Object.fromEntries(new FormData(form));
  try {
    const answer = await fetch("/api/v1/auth/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ email, password }),
    });
    const { success, data, error } = await answer.json();
    if (success) {
      reference.preauthorizeApiKey("bearer", data.tokens.access_token);
      form.elements.password.value = "";
    }
    told.value = success ? `Signed in as ${data.user.email}.` : error.message;
  } catch {
    told.value = "The service did not answer.";
  }
});

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();
