// Elements of a page, made of texts that are never read as HTML, and requests to our own server.

/** Return an element with attributes and children; a text stays a text. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

const token = document.querySelector('meta[name="csrf-token"]').content;

export class Ended extends Error {}

/** Return the JSON of an address, posted to if there are fields. */
export async function request(address, fields, signal) {
  const how = { headers: { Accept: "application/json" }, credentials: "same-origin", signal };
  if (fields) {
    how.method = "POST";
    how.headers["X-CSRF-Token"] = token;
    how.body = new URLSearchParams(fields);
  }
  const response = await fetch(address, how);
  if (response.status === 204) return null;
  if (response.redirected || !response.headers.get("content-type")?.includes("json")) {
    throw new Ended("your visit has ended");
  }
  return response.json();
}

/** Return a text as a sentence: with a capital, unless it begins with a name, and an end. */
export function sentence(text) {
  const begun = /^(refused:|[a-z']+[ ,])/.test(text) ? `${text[0].toUpperCase()}${text.slice(1)}` : text;
  return /[.?!]$/.test(begun) ? begun : `${begun}.`;
}
