// Puts the libraries of the page where a browser can load them as modules, each with its licence.
//
// node web/vendor.mjs [FROM = web/node_modules] [TO = tuner/ui/static/vendor]
import { copyFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [from = join(here, "node_modules"), to = join(here, "..", "tuner", "ui", "static", "vendor")] = process.argv.slice(2);

const FILES = {
  "preact.js": ["preact/dist/preact.module.js"],
  "hooks.js": ["preact/hooks/dist/hooks.module.js"],
  "htm.js": ["htm/dist/htm.module.js"],
  // The minified build is a script that sets a global.
  "uplot.js": ["uplot/dist/uPlot.iife.min.js", "\nexport default uPlot;\n"],
  "uplot.css": ["uplot/dist/uPlot.min.css"],
};

const made = `${to}.new`;
rmSync(made, { recursive: true, force: true });
mkdirSync(made, { recursive: true });
for (const [name, [source, after = ""]] of Object.entries(FILES)) {
  const text = readFileSync(join(from, source), "utf8")
    .replace(/^\/\/# sourceMappingURL=.*$/m, "")
    .replace(/from\s*"preact"/g, 'from"./preact.js"'); // a browser knows no bare names, and an import map is an inline script
  writeFileSync(join(made, name), text + after);
}
for (const name of ["htm", "preact", "uplot"]) copyFileSync(join(from, name, "LICENSE"), join(made, `LICENSE-${name}`));
rmSync(to, { recursive: true, force: true });
renameSync(made, to);
