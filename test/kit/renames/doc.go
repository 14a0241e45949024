// Package renames tells files that were renamed into place from those that were written
// in place. It watches directories with inotify.
package renames
