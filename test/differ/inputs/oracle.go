package inputs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Question is one input for the oracle.
type Question struct {
	Manifest *ManifestQuestion `json:"manifest,omitempty"`
	Config   *ConfigQuestion   `json:"config,omitempty"`
}

// ManifestQuestion is a manifest from a file or from a URL.
type ManifestQuestion struct {
	Text  []byte          `json:"text"`
	File  string          `json:"file,omitempty"`
	URL   string          `json:"url,omitempty"`
	Node  string          `json:"node"`
	Gates map[string]bool `json:"gates,omitempty"`
}

// ConfigQuestion is a command line. The files that it names are on the disk.
type ConfigQuestion struct {
	Args []string `json:"args"`
}

// Answer is upstream's result for an input.
type Answer struct {
	Refused string            `json:"refused"`
	Stage   string            `json:"stage"` // where a configuration was refused
	Pods    []json.RawMessage `json:"pods"`
	Mirrors []json.RawMessage `json:"mirrors"`
	Kubelet json.RawMessage   `json:"kubelet"`
	Flags   map[string]any    `json:"flags"`
	Gates   map[string]bool   `json:"gates"`
}

// Oracle is a running oracle. It is for one goroutine.
type Oracle struct {
	// Accepted counts the inputs that upstream has accepted so far.
	Accepted int

	ctx     context.Context
	program string
	certs   string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// StartOracle starts the program. certs is a directory of its own.
func StartOracle(ctx context.Context, program, certs string) (*Oracle, error) {
	o := &Oracle{
		ctx:     ctx,
		program: program,
		certs:   certs,
	}
	return o, o.start()
}

func (o *Oracle) start() error {
	o.cmd = exec.CommandContext(o.ctx, o.program, "-cert-dir", o.certs)
	o.cmd.Stderr = os.Stderr
	var err error
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start oracle: %w", err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start oracle: %w", err)
	}
	o.out = bufio.NewReader(out)
	if err := o.cmd.Start(); err != nil {
		return fmt.Errorf("start oracle: %w", err)
	}
	return nil
}

// Ask returns upstream's answer. An input that ends the process, as it would end
// upstream's kubelet, counts as refused.
func (o *Oracle) Ask(q Question) (Answer, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return Answer{}, fmt.Errorf("encode question: %w", err)
	}
	_, werr := o.in.Write(append(b, '\n'))
	line, err := o.out.ReadBytes('\n')
	if werr == nil && err == nil {
		var a Answer
		if err := json.Unmarshal(line, &a); err != nil {
			return a, fmt.Errorf("decode answer: %w", err)
		}
		if a.Refused == "" {
			o.Accepted++
		}
		return a, nil
	}
	ended := o.cmd.Wait()
	if o.ctx.Err() != nil {
		return Answer{}, o.ctx.Err()
	}
	var exit *exec.ExitError
	if !errors.As(ended, &exit) {
		return Answer{}, fmt.Errorf("ask oracle: %w (process: %v)", errors.Join(werr, err), ended)
	}
	return Answer{Refused: "the process ended: " + exit.Error(), Stage: "exit"}, o.start()
}

// Close ends the program.
func (o *Oracle) Close() error {
	o.in.Close()
	return o.cmd.Wait()
}
