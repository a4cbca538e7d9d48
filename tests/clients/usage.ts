// A client of the service in TypeScript: `tsc --strict` checks it against the generated types, and node runs it.
// node usage.js URL EMAIL PASSWORD prints the statuses of the lists that it has read, as JSON.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Session = components["schemas"]["SessionOverview"];
type Message = components["schemas"]["Message"];

declare const process: { argv: string[] };
const [url, email, password] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url });

function text(message: Message): string {
  const content: { text?: string } = JSON.parse(new TextDecoder().decode(new Uint8Array(message.content)));
  return content.text ?? "";
}

const login = await client.POST("/api/v1/auth/login", { body: { email, password } });
if (!login.data) throw new Error(login.error.error.code);
const headers = { Authorization: `Bearer ${login.data.data.tokens.access_token}` };

const open: Session["status"] = "open";
const chats = await client.GET("/api/v1/chats", { headers, params: { query: { status: open } } });
const chat = chats.data?.data[0];
if (!chat) throw new Error("there is no chat session");
const path = { id: chat.id };
const sent = await client.POST("/api/v1/chats/{id}/messages", {
  headers,
  params: { path },
  body: { content: { text: "Hello from TypeScript" } },
});
if (!sent.data) throw new Error(sent.error.error.code);
const words = text(sent.data.data);

const patched = await client.PATCH("/api/v1/users/me/settings", { headers, body: { appearance: { theme: "dark" } } });
const theme: "dark" | "light" | "system" | undefined = patched.data?.data.appearance.theme;

const lists = [
  chats,
  await client.GET("/api/v1/chats/{id}/messages", { headers, params: { path, query: { direction: "backward" } } }),
  await client.GET("/api/v1/bots", { headers, params: { query: { app_id: chat.app_id } } }),
  await client.GET("/api/v1/data-shares", { headers }),
  await client.GET("/api/v1/events", { headers, params: { query: { from: new Date().toISOString() } } }),
  await client.GET("/api/v1/notifications", { headers }),
];
console.log(JSON.stringify({ words, theme, statuses: lists.map((list) => list.response.status) }));
