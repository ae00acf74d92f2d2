// Bundles what the console uses of others into ../static/vendor, where it is committed.

import { build } from "esbuild";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

const out = process.argv[2] ?? new URL("../static/vendor", import.meta.url).pathname;
const here = new URL(".", import.meta.url).pathname;
const common = { bundle: true, minify: true, target: "es2022", legalComments: "none", logLevel: "error" };

await mkdir(out, { recursive: true });
const editors = await build({
  ...common,
  entryPoints: [join(here, "editor.js"), join(here, "policy-editor.js")],
  format: "esm",
  splitting: true,
  chunkNames: "shared",
  outdir: out,
  metafile: true,
});
await build({
  ...common,
  stdin: { contents: 'export { default } from "uplot"', resolveDir: here },
  format: "esm",
  outfile: join(out, "uplot.js"),
});
await build({ ...common, entryPoints: [join(here, "node_modules/uplot/dist/uPlot.min.css")], outfile: join(out, "uplot.css") });
const htmx = await readFile(join(here, "node_modules/htmx.org/dist/htmx.min.js"), "utf8");
await writeFile(join(out, "htmx.js"), `${htmx.trimEnd()}\n`);

const bundled = Object.keys(editors.metafile.inputs)
  .map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1])
  .filter(Boolean);
const licenses = [];
for (const name of [...new Set([...bundled, "uplot", "htmx.org"])].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
  const text = file ? (await readFile(join(folder, file), "utf8")).trim() : "";
  licenses.push(`${name} ${version} (${license})\n\n${text}\n`);
}
await writeFile(join(out, "LICENSES"), licenses.join(`\n${"-".repeat(78)}\n\n`));
