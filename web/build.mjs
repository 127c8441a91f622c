// Makes tuner/ui/static of web/src and of the libraries that npm has fetched.
//
// node web/build.mjs [TO = tuner/ui/static]
//
// No bundler: each module stays one, without its comments and long names. Libraries go to vendor/, each with its licence.
import { cpSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { minify } from "terser";

const here = dirname(fileURLToPath(import.meta.url));
const [to = join(here, "..", "tuner", "ui", "static")] = process.argv.slice(2);

const LIBRARIES = {
  "preact.js": "preact/dist/preact.module.js",
  "hooks.js": "preact/hooks/dist/hooks.module.js",
  "htm.js": "htm/dist/htm.module.js",
};

async function own(path) {
  const text = readFileSync(path, "utf8");
  if (extname(path) === ".js") return (await minify(text, { module: true, ecma: 2022 })).code;
  if (extname(path) === ".css") return text.replace(/\/\*[^]*?\*\/|^\s+/gm, "").replace(/\n/g, "");
  return text;
}

function library(source) {
  const text = readFileSync(join(here, "node_modules", source), "utf8").replace(/^\/\/# sourceMappingURL=.*$/m, "");
  // A browser knows no bare names, and an import map would be an inline script.
  return text.replace(/from\s*"preact"/g, 'from"./preact.js"');
}

// Made beside and renamed, so that a server never reads half of it.
const made = `${to}.new`;
rmSync(made, { recursive: true, force: true });
mkdirSync(join(made, "vendor"), { recursive: true });
for (const entry of readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })) {
  if (!entry.isFile()) continue;
  const path = join(entry.parentPath, entry.name);
  const target = join(made, path.slice(join(here, "src").length));
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, await own(path));
}
for (const [name, parts] of Object.entries(LIBRARIES)) writeFileSync(join(made, "vendor", name), library(parts));
for (const name of ["htm", "preact"]) cpSync(join(here, "node_modules", name, "LICENSE"), join(made, "vendor", `LICENSE-${name}`));
rmSync(to, { recursive: true, force: true });
renameSync(made, to);
