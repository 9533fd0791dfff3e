// Holds answers against openapi.json: as much of JSON schema as that file uses.

import { readFileSync } from "node:fs";

const API = JSON.parse(readFileSync(new URL("../../openapi.json", import.meta.url), "utf8"));

const resolved = (schema) => {
  while (schema.$ref) schema = schema.$ref.split("/").slice(1).reduce((at, name) => at[name], API);
  return schema;
};

const TYPES = {
  object: (v) => typeof v === "object" && v !== null && !Array.isArray(v),
  array: Array.isArray,
  string: (v) => typeof v === "string",
  boolean: (v) => typeof v === "boolean",
  number: (v) => typeof v === "number",
  integer: Number.isInteger,
};

/** What does not fit, each with its place. */
export function misfits(schema, value, at = "") {
  schema = resolved(schema);
  if (schema.allOf) return schema.allOf.flatMap((s) => misfits(s, value, at));
  if (schema.oneOf) return schema.oneOf.some((s) => misfits(s, value, at).length === 0) ? [] : [`${at}: none of the forms`];
  if (value === null && schema.nullable) return [];
  if (schema.type && !TYPES[schema.type](value)) return [`${at}: ${JSON.stringify(value)?.slice(0, 60)} is no ${schema.type}`];
  if (schema.enum && !schema.enum.includes(value)) return [`${at}: ${value} is none of ${schema.enum}`];
  if (Array.isArray(value)) {
    const { minItems = 0, maxItems = Infinity, items = {} } = schema;
    const count = value.length < minItems || value.length > maxItems ? [`${at}: ${value.length} items`] : [];
    return [...count, ...value.flatMap((v, i) => misfits(items, v, `${at}/${i}`))];
  }
  if (!TYPES.object(value)) return [];
  const missing = (schema.required ?? []).filter((name) => !(name in value)).map((name) => `${at}: ${name} is missing`);
  const known = schema.properties ?? {};
  const rest = schema.additionalProperties ?? {};
  return [...missing, ...Object.entries(value).flatMap(([name, v]) => misfits(known[name] ?? rest, v, `${at}/${name}`))];
}

/** The same of a path's answer. */
export function unlike(method, path, status, value) {
  const of = API.paths[path.split("?")[0]]?.[method]?.responses[status];
  if (!of) return [`${method} ${path} is not to answer ${status}`];
  const [media] = Object.values(resolved(of).content ?? {});
  return media ? misfits(media.schema, value, path) : [];
}

export const figuresUnlike = (value) => misfits({ $ref: "#/components/schemas/Figures" }, value, "figures");

/** What can be asked for by a session and answers at once. */
export const GETS = Object.keys(API.paths).filter((path) => API.paths[path].get && path !== "/api/live");
