// Subscribes this browser to push notifications, at the press of a button.
"use strict";

const part = document.querySelector("[data-web-push]");

const showState = (state) => {
  for (const element of part.querySelectorAll("[data-state]")) element.hidden = element.dataset.state !== state;
};

const bytesOf = (base64url) => {
  const text = atob(base64url.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
};

// A subscription of another login session, or of another user, does not count.
const isStored = (subscription) => part.dataset.endpoints.split(" ").includes(subscription.endpoint);

const submit = (act, { endpoint, keys = {} }) => {
  const form = part.querySelector("form");
  for (const [name, value] of Object.entries({ act, endpoint, ...keys })) form.elements[name].value = value;
  form.requestSubmit();
};

const activated = (registration) => new Promise((resolve) => {
  const worker = registration.installing ?? registration.waiting;
  if (!worker) resolve();
  else worker.addEventListener("statechange", () => worker.state === "activated" && resolve());
});

const subscribe = async () => {
  if (await Notification.requestPermission() !== "granted") return showState("blocked");
  const registration = await navigator.serviceWorker.register("/static/push-worker.js");
  await activated(registration);
  await (await registration.pushManager.getSubscription())?.unsubscribe();  // it may belong to another key
  const options = { userVisibleOnly: true, applicationServerKey: bytesOf(part.dataset.webPush) };
  submit("subscribe", (await registration.pushManager.subscribe(options)).toJSON());
};

const current = async () => {
  const registration = await navigator.serviceWorker.getRegistration("/static/");
  return registration?.pushManager.getSubscription();
};

const unsubscribe = async () => {
  const subscription = await current();
  await subscription.unsubscribe();
  submit("unsubscribe", subscription);
};

const start = async () => {
  if (Notification.permission === "denied") return showState("blocked");
  const subscription = await current();
  showState(subscription && isStored(subscription) ? "on" : "off");
};

if (part && "serviceWorker" in navigator && "PushManager" in window && "Notification" in window) {
  const failed = () => showState("failed");
  part.querySelector("[data-subscribe]").addEventListener("click", () => subscribe().catch(failed));
  part.querySelector("[data-unsubscribe]").addEventListener("click", () => unsubscribe().catch(failed));
  start().catch(failed);
}
