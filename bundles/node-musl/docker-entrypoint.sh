#!/bin/sh
# Runs its arguments as a command; options, or a file that is no command, go to Node.
set -e
case "${1-}" in
    '' | -*) exec node "$@" ;;
esac
if ! command -v "$1" >/dev/null 2>&1 && [ -f "$1" ]; then
    exec node "$@"
fi
exec "$@"
