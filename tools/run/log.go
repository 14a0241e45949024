package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// follower reads what is appended to the kubelet's log, and selects what a user should see.
type follower struct {
	file    string
	replace *strings.Replacer // of paths that the user does not know
	offset  int64
	logged  map[string]bool // each message is logged once
	// passOver reports whether an event of a pod is not shown.
	passOver func(pod, reason string) bool
}

// maxLogged bounds the record of what was logged.
const maxLogged = 1000

// skipToEnd skips what is in the log already.
func (f *follower) skipToEnd() error {
	info, err := os.Stat(f.file)
	if err != nil {
		return fmt.Errorf("read kubelet's log: %w", err)
	}
	f.offset = info.Size()
	return nil
}

// more returns a sentence for each new line that should be shown.
func (f *follower) more() ([]string, error) {
	file, err := os.Open(f.file)
	if err != nil {
		return nil, fmt.Errorf("read kubelet's log: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.NewSectionReader(file, f.offset, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read kubelet's log: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	f.offset += int64(len(whole))
	var out []string
	for line := range strings.Lines(string(whole)) {
		text := f.replace.Replace(f.sentence(fields(line)))
		if text == "" || f.logged[text] {
			continue
		}
		if len(f.logged) > maxLogged {
			clear(f.logged)
		}
		f.logged[text] = true
		out = append(out, text)
	}
	return out, nil
}

// field is one key and value of a line.
type field struct{ key, value string }

// fields reads a line of slog's text form.
func fields(line string) []field {
	var out []field
	rest := strings.TrimSpace(line)
	for rest != "" {
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return out
		}
		value := after
		if quoted, err := strconv.QuotedPrefix(after); err == nil {
			value, _ = strconv.Unquote(quoted) // QuotedPrefix has checked that it is quoted
			rest = strings.TrimSpace(after[len(quoted):])
		} else {
			value, rest, _ = strings.Cut(after, " ")
		}
		out = append(out, field{key, value})
	}
	return out
}

// sentence returns a sentence for a line about a warning or an error, and an empty string for other lines. Events that
// the status of a container shows better are left out.
func (f *follower) sentence(line []field) string {
	of := map[string]string{}
	for _, l := range line {
		of[l.key] = l.value
	}
	if of["level"] != "WARN" && of["level"] != "ERROR" {
		return ""
	}
	if of["msg"] == "event" {
		name := strings.TrimPrefix(of["pod"], "default/")
		switch of["reason"] {
		case "Failed", "BackOff", "FailedValidation": // shown by status or by another line
			return ""
		case "MissingClusterDNS": // there is no cluster
			return ""
		}
		if name == "" || f.passOver(name, of["reason"]) {
			return ""
		}
		return fmt.Sprintf("%s: %s: %s", name, of["reason"], of["message"])
	}
	text := of["msg"]
	for _, l := range line {
		switch l.key {
		case "time", "level", "msg", "uid", "podUID", "source", "keepsLastGood", "retryAfter": // the last one grows
		case "err":
			text += ": " + l.value
		default:
			text += ", " + l.key + " " + l.value
		}
	}
	if of["keepsLastGood"] == "true" {
		text += "; the pod keeps running with its last valid manifest"
	}
	return "kubelet: " + text
}

// tail returns the last lines of a log.
func tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
