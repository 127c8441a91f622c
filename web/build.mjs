// Makes tuner/ui/static of web/src and of the libraries that npm has fetched; and tuner/ui/report.html, the same page in one file.
//
// node web/build.mjs
//
// No bundler: each module stays one, without its comments and long names. Libraries go to vendor/, each with its licence.
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { minify } from "terser";

const here = dirname(fileURLToPath(import.meta.url));
const to = join(here, "..", "tuner", "ui", "static");

/** Each with what is taken of it; the rest is left out. */
const LIBRARIES = {
  "preact.js": ["preact/dist/preact.module.js", "Component h options render"],
  "hooks.js": ["preact/hooks/dist/hooks.module.js", "useEffect useMemo useRef useState"],
  "htm.js": ["htm/dist/htm.module.js", "default"],
};

const sources = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));

/** What one module imports of another keeps its name: so all files say it alike, and compress better. */
const SHARED = sources.flatMap((path) => [...readFileSync(path, "utf8").matchAll(/^import \{([^}]*)\}/gm)]).flatMap(([, names]) => names.match(/[\w$]+/g));

async function own(path) {
  const text = readFileSync(path, "utf8");
  // Line ends and indentation between the elements of templates are nothing to htm, and are not taken out by terser.
  if (extname(path) === ".js") return (await minify(text.replace(/\n +/g, "\n").replace(/(?<=[>}])\n(?=<|\$\{)/g, ""), { module: true, ecma: 2022, mangle: { reserved: SHARED }, compress: { passes: 3, unsafe_arrows: true } })).code;
  if (extname(path) === ".css") return text.replace(/\/\*[^]*?\*\/|^\s+/gm, "").replace(/\n/g, "").replace(/ ?([{};:,>]) ?/g, (all, sign) => (":>".includes(sign) ? all.trimEnd() : sign));
  return text;
}

async function library([source, taken]) {
  const text = readFileSync(join(here, "node_modules", source), "utf8").replace(/^\/\/# sourceMappingURL=.*$/m, "");
  const exported = (_, all) => `export{${all.split(",").filter((each) => taken.split(" ").includes(each.split(" as ").pop()))}}`;
  // A browser knows no bare names, and an import map would be an inline script.
  const needed = text.replace(/export\s*\{([^}]*)\}/, exported).replace(/from\s*"preact"/g, 'from"./preact.js"');
  return (await minify(needed, { module: true, ecma: 2022, compress: { passes: 3 } })).code;
}

/** The modules as one script: each a function that gives its exports, called once, after those that it imports. */
function joined(root) {
  const names = new Map();
  const parts = [];
  const take = (path) => {
    if (names.has(path)) return names.get(path);
    const given = [];
    const imported = (_, whole, listed, from) => {
      const other = take(join(dirname(path), from));
      return whole ? `const ${whole}=${other}.default;` : `const{${listed.replace(/([\w$]+) as ([\w$]+)/g, "$1:$2")}}=${other};`;
    };
    const body = readFileSync(join(root, path), "utf8")
      .replace(/import(?:\s+([\w$]+)\s*|\s*\{([^}]*)\}\s*)from\s*"([^"]+)";?/g, imported)
      .replace(/export\s*\{([^}]*)\};?/g, (_, listed) => (given.push(listed.replace(/([\w$]+) as ([\w$]+)/g, "$2:$1")), ""))
      .replace(/export default (function\b)/, (_, what) => (given.push("default:made"), `const made=${what}`))
      .replace(/export ((?:async )?function|class|const) ([\w$]+)/g, (_, what, name) => (given.push(name), `${what} ${name}`));
    if (/^(import|export)\b/m.test(body)) throw new Error(`${path}: an import or export of a form that is not known here`);
    const name = `$${names.size}_`;
    names.set(path, name);
    parts.push(`const ${name}=(()=>{${body}\nreturn{${given}}})();`);
    return name;
  };
  take("app.js");
  return parts.join("\n");
}

/** Where the data are packed, that is undone before anything else: base64 of gzip, which no JSON begins like. */
const UNPACK = `const packed=document.getElementById("data");
if(!/^[{]/.test(packed.textContent))packed.textContent=await new Response(new Blob([Uint8Array.from(atob(packed.textContent),(each)=>each.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
`;

/** The page with everything inside; its policy allows that script and that style and nothing else. */
function onePage(root) {
  const script = UNPACK + joined(root);
  const style = readFileSync(join(root, "page.css"), "utf8");
  if (/<\/(script|style)/i.test(script + style)) throw new Error("what stands inside of a page cannot end its element");
  const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  const licences = ["preact", "htm"].map((name) => `${name}:\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8")}`);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'">
<title>{{title}}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>${style}</style>
</head>
<body><noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="data">{{data}}</script>
<script type="module">${script}</script>
</body>
</html>
<!-- What it is made of:\n${licences.join("\n").replace(/--/g, "- -")}-->
`;
}

// Made beside and renamed, so that a server never reads half of it.
const made = `${to}.new`;
rmSync(made, { recursive: true, force: true });
mkdirSync(join(made, "vendor"), { recursive: true });
for (const path of sources) {
  const target = join(made, path.slice(join(here, "src").length));
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, await own(path));
}
for (const [name, parts] of Object.entries(LIBRARIES)) writeFileSync(join(made, "vendor", name), await library(parts));
for (const name of ["htm", "preact"]) cpSync(join(here, "node_modules", name, "LICENSE"), join(made, "vendor", `LICENSE-${name}`));
writeFileSync(`${to}.report`, onePage(made));
const old = `${to}.old`;
rmSync(old, { recursive: true, force: true });
if (existsSync(to)) renameSync(to, old);
renameSync(made, to);
rmSync(old, { recursive: true, force: true });
renameSync(`${to}.report`, join(to, "..", "report.html"));
