package script

import (
	"fmt"
	"regexp"
	"strings"

	"keelson/test/kit/placement"
)

// Scenario is a parsed file.
type Scenario struct {
	Name    string
	Rows    []string           // parity rows it proves
	Parts   []part             // parity rows that it proves with others
	Differs []difference       // parity rows from which the agent differs, as the scenario shows
	Config  string             // YAML, merged into the agent's configuration
	Machine *placement.Machine // nil: the machine of the test
	Crash   bool               // also run by the crash test
	Timely  bool               // its output depends on when calls are answered
	Late    bool               // the agent is not started at the beginning
	Loose   bool               // output without a block is not compared
	Files   map[string]string  // manifests

	steps []step
	lines []string // of the script, as they are in the file
	rest  string   // the manifests, as they are in the file
}

// step is one command and its expected output.
type step struct {
	line  int // index into Scenario.lines
	args  []string
	want  string
	block [2]int // lines of the block, its ---- included; empty if there is none
}

const ruler = "----"

// fileHead is the line before a file, as in a txtar archive.
var fileHead = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

// Parse reads a scenario. A head of `key: value` lines may stand before the
// first command; comments begin with #.
func Parse(name, text string) (*Scenario, error) {
	s := &Scenario{Name: name, Files: map[string]string{}}
	script := text
	if heads := fileHead.FindAllStringSubmatchIndex(text, -1); heads != nil {
		script, s.rest = text[:heads[0][0]], text[heads[0][0]:]
		for i, h := range heads {
			end := len(text)
			if i+1 < len(heads) {
				end = heads[i+1][0]
			}
			s.Files[text[h[2]:h[3]]] = text[h[1]:end]
		}
	}
	s.lines = strings.Split(strings.TrimRight(script, "\n"), "\n")
	for i := 0; i < len(s.lines); i++ {
		line := strings.TrimSpace(s.lines[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if key, value, ok := strings.Cut(line, ": "); ok && len(s.steps) == 0 && !strings.Contains(key, " ") {
			if err := s.setHead(key, value); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
			}
			continue
		}
		args, err := words(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		st := step{line: i, args: args, block: [2]int{i + 1, i + 1}}
		if i+1 < len(s.lines) && s.lines[i+1] == ruler {
			end := i + 2
			for end < len(s.lines) && s.lines[end] != "" {
				end++
			}
			st.block = [2]int{i + 1, end}
			for _, l := range s.lines[i+2 : end] {
				st.want += l + "\n"
			}
			i = end
		}
		s.steps = append(s.steps, st)
	}
	return s, nil
}

func (s *Scenario) setHead(key, value string) error {
	switch key {
	case "rows":
		s.Rows = append(s.Rows, strings.Fields(value)...)
	case "part":
		return s.addPart(value)
	case "differs":
		return s.addDifference(value)
	case "config":
		s.Config += value + "\n"
	case "machine":
		return s.setMachine(value)
	case "crash":
		s.Crash = value == "yes"
	case "answers":
		s.Timely = value == "timely"
	case "start":
		s.Late = value == "later"
	default:
		return fmt.Errorf("unknown head %q: there are rows, part, differs, config, machine, crash, answers and start",
			key)
	}
	return nil
}

// words splits a line at spaces outside of 'single quotes'.
func words(line string) ([]string, error) {
	var out []string
	var word strings.Builder
	quoted, open := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if open {
				out = append(out, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("read command: a quote is not closed")
	}
	if open {
		out = append(out, word.String())
	}
	return out, nil
}

// With is the file's text with new blocks, given by step.
func (s *Scenario) With(shown []string) string {
	var b strings.Builder
	from := 0
	for i, st := range s.steps {
		for _, l := range s.lines[from:st.block[0]] {
			b.WriteString(l + "\n")
		}
		from = st.block[1]
		if shown[i] != "" || st.block[0] < st.block[1] {
			b.WriteString(ruler + "\n" + shown[i])
			if from < len(s.lines) && s.lines[from] != "" {
				b.WriteString("\n") // a new block needs its end
			}
		}
	}
	for _, l := range s.lines[from:] {
		b.WriteString(l + "\n")
	}
	if s.rest != "" && !strings.HasSuffix(b.String(), "\n\n") {
		b.WriteString("\n")
	}
	return b.String() + s.rest
}
