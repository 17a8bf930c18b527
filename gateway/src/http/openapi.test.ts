import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { DELETE_PARAMETERS, GET_PARAMETERS, PUT_PARAMETERS } from "./kv-routes.ts";
import { LIST_PARAMETERS, SHOW_PARAMETERS } from "./lease-routes.ts";
import { PATHS } from "./routes.ts";
import { WATCH_PARAMETERS } from "./watch-route.ts";

const text = readFileSync(join(import.meta.dirname, "../../openapi.yaml"), "utf8");

/** The lines below `  /path:` up to the next path, for each path. */
function pathSections(): Map<string, string> {
  const paths = text.slice(text.indexOf("\npaths:\n"), text.indexOf("\ncomponents:\n"));
  const sections = paths.split(/\n {2}(?=\/)/).slice(1);
  return new Map(sections.map((section) => [section.slice(0, section.indexOf(":\n")), section]));
}

/** The part of a path's section that describes one method. */
function methodSection(section: string, method: string): string | undefined {
  return section.split(/\n {4}(?=[a-z]+:\n)/).find((part) => part.startsWith(`${method.toLowerCase()}:\n`));
}

describe("gateway/openapi.yaml", () => {
  it("describes every route, and no other", () => {
    const described = [...pathSections()].flatMap(([path, section]) =>
      ["get", "put", "post", "delete"]
        .filter((method) => methodSection(section, method) !== undefined)
        .map((method) => `${method.toUpperCase()} ${path}`),
    );
    const served = PATHS.map(({ method, url }) => `${method} ${url.replace(":id", "{id}")}`);
    assert.deepEqual(described.sort(), served.sort());
  });

  it("describes every query parameter of its route", () => {
    const sections = pathSections();
    const expected: [string, string, readonly string[]][] = [
      ["/v1/kv", "get", GET_PARAMETERS],
      ["/v1/kv", "put", PUT_PARAMETERS],
      ["/v1/kv", "delete", DELETE_PARAMETERS],
      ["/v1/leases", "get", LIST_PARAMETERS],
      ["/v1/leases/{id}", "get", SHOW_PARAMETERS],
      ["/v1/watch", "get", WATCH_PARAMETERS],
    ];
    for (const [path, method, parameters] of expected) {
      const section = methodSection(sections.get(path) ?? "", method) ?? "";
      for (const name of parameters) {
        assert.match(section, new RegExp(`name: ${name}(,|\\n)`), `${method} ${path} ?${name}`);
      }
    }
  });

  it("refers only to components that it has", () => {
    const references = new Set(
      [...text.matchAll(/\$ref: "#\/components\/(\w+)\/(\w+)"/g)].map((match) => match.slice(1)),
    );
    const components = text.slice(text.indexOf("\ncomponents:\n"));
    for (const [group, name] of references) {
      const start = components.indexOf(`\n  ${group}:\n`);
      assert.ok(start >= 0, group);
      const rest = components.slice(start + 1);
      const end = rest.search(/\n {2}\w+:\n/);
      assert.match(end < 0 ? rest : rest.slice(0, end), new RegExp(`\\n {4}${name}:`), `${group}/${name}`);
    }
  });
});
