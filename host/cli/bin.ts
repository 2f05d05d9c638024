#!/bin/sh
// 2>/dev/null; exec node -- "$0" "$@"
/**
 * The `caisson` command. A shell runs the second line, which is a comment here: without `--` Node takes options such as
 * `--env-file` for its own, wherever they stand.
 */
import { enableCompileCache } from 'node:module'

enableCompileCache()
const { runCli } = await import('./main.ts')
process.exitCode = await runCli(process.argv.slice(2))
