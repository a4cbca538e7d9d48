// Shows the push notifications of this installation. The service encrypts them, so the push service cannot change them.
"use strict";

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("push", (event) => {
  const { title, body, tag, page } = event.data.json();
  const options = { body, tag, renotify: true, icon: "/static/icon.svg", data: { page } };
  event.waitUntil(self.registration.showNotification(title, options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(self.clients.openWindow(event.notification.data.page));
});
