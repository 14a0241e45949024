// Package cert provides the serving certificate and the client CAs from files, and reloads them.
//
// Files are checked on a handshake or request, at most once per second, and read again when they have changed. There is
// no watch and no timer, so an idle server does no work. A file that cannot be read leaves the last valid content in
// force, and is logged once.
package cert
