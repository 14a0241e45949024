package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Stream is an output stream of a container.
type Stream string

// Streams of a container.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// line is one line of a log file: a line of the container's output including the line feed, or a
// part of one without it.
type line struct {
	time   time.Time
	stream Stream
	text   []byte // valid until the next line is read
}

var errFormat = errors.New("unknown line format")

// parse parses one line of a log file, with or without line feed. The formats are distinguished by
// the first character: a digit or a brace.
func parse(raw []byte) (line, error) {
	if len(raw) > 0 && raw[0] == '{' {
		return parseJSONFile(raw)
	}
	return parseCRI(raw)
}

// parseCRI parses a line such as
//
//	2016-10-06T00:17:09.669794202Z stdout F the text
//
// where the third field contains tags separated by colons. The first tag is P for a partial line,
// and F for a full line or its last part.
func parseCRI(raw []byte) (line, error) {
	stamp, rest, ok := bytes.Cut(raw, []byte{' '})
	if !ok {
		return line{}, errFormat
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return line{}, fmt.Errorf("%w: %w", errFormat, err)
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return line{}, errFormat
	}
	s := Stream(stream)
	if s != Stdout && s != Stderr {
		return line{}, fmt.Errorf("%w: stream %q", errFormat, stream)
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return line{}, errFormat
	}
	if tag, _, _ := bytes.Cut(tags, []byte{':'}); string(tag) == "P" {
		text = bytes.TrimSuffix(text, []byte{'\n'})
	}
	return line{time: t, stream: s, text: text}, nil
}

// parseJSONFile parses a line such as
//
//	{"log":"the text\n","stream":"stdout","time":"2016-10-20T18:39:20.57606443Z"}
func parseJSONFile(raw []byte) (line, error) {
	var j struct {
		Log    string    `json:"log"`
		Stream Stream    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return line{}, fmt.Errorf("%w: %w", errFormat, err)
	}
	if j.Stream != Stdout && j.Stream != Stderr {
		return line{}, fmt.Errorf("%w: stream %q", errFormat, j.Stream)
	}
	return line{time: j.Time, stream: j.Stream, text: []byte(j.Log)}, nil
}
