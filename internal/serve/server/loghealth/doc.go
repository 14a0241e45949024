// Package loghealth checks whether log lines are written. If writing blocks, each part of the agent blocks at its next
// log line.
//
// [Log] counts the lines that are being written, under one lock.
package loghealth
