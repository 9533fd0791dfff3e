// Builds the page into dist/: one script, one style sheet, one document, one icon. The same sources give the same bytes.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 100 * 1024;

mkdirSync("dist", { recursive: true });
await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: true,
  legalComments: "none",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
copyFileSync("src/index.html", "dist/index.html");
copyFileSync("src/icon.svg", "dist/icon.svg");
let total = 0;
for (const name of ["index.html", "app.js", "app.css", "icon.svg"]) {
  const size = gzipSync(readFileSync(`dist/${name}`), { level: 9 }).length;
  total += size;
  console.log(`${name}: ${size} bytes gzipped`);
}
console.log(`all: ${total} of ${LIMIT_BYTES} bytes`);
if (total > LIMIT_BYTES) process.exit(1);
