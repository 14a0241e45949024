package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Stream says where a container wrote a line.
type Stream string

// The streams of a container.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// line is one line of a log file: a line of the container's output with its
// end, or a piece of one without.
type line struct {
	time   time.Time
	stream Stream
	text   []byte // not the reader's own: valid until the next line is read
}

var errFormat = errors.New("line is in no known format")

// parse reads one line of a log file, with or without its end. The two formats
// cannot be mistaken for each other: one begins with a date, one with a brace.
func parse(raw []byte) (line, error) {
	if len(raw) > 0 && raw[0] == '{' {
		return parseJSONFile(raw)
	}
	return parseCRI(raw)
}

// parseCRI reads a line such as
//
//	2016-10-06T00:17:09.669794202Z stdout F the text
//
// where the third field holds tags separated by colons, of which the first is P
// for a piece of a line and F for a whole one or the last piece.
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

// parseJSONFile reads a line such as
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
