#!/bin/sh
':' //; exec node -- "$0" "$@"
/** The `caisson` command. */
import { enableCompileCache } from 'node:module'

enableCompileCache()
const { runCli } = await import('./main.ts')
process.exitCode = await runCli(process.argv.slice(2))
