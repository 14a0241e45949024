// Package loghealth finds out whether the log takes lines. An agent whose log blocks stops part by part.
//
// [Log] counts the lines that are being written, under one lock.
package loghealth
