// Package provider asks plugins for credentials of registries: programs that get
// the name of an image on their standard input and answer with user names and
// passwords.
//
// It owns what plugins answered, for as long as they said, in memory only. It
// reads which plugins there are from a file, or a directory of files, at the
// start. Credentials and tokens never reach the log or an error; what a plugin
// writes to its standard error does.
//
// Pulls that want the same of a plugin at the same time share one run of it.
// Lock order: plugin.mu only.
package provider
