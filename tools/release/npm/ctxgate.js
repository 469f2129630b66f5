#!/usr/bin/env node
// Runs the ctxgate program of this platform, which npm installs as an optional dependency of this package.
"use strict";

const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "ctxgate.exe" : "ctxgate";

let program;
try {
  program = require.resolve(`@ctxgate/${platform}/bin/${file}`);
} catch {
  console.error(
    `ctxgate: the package @ctxgate/${platform} is not installed. There is one for Linux, macOS and Windows on x64 and arm64; ` +
      "install ctxgate again without --omit=optional, on the machine where it runs.",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit", windowsHide: true });

// A terminal sends Ctrl-C to the program too, and a second one would end it at once: it is not passed on.
process.on("SIGINT", () => {});
const passedOn = ["SIGTERM", "SIGHUP"];
for (const signal of passedOn) process.on(signal, () => child.kill(signal));

child.on("error", (err) => {
  console.error(`ctxgate: ${program} cannot be started: ${err.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  for (const s of [...passedOn, "SIGINT"]) process.removeAllListeners(s);
  process.kill(process.pid, signal);
});
