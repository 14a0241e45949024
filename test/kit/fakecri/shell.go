package fakecri

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The small shell. It runs these commands, separated by ; && || or newline:
//
//	echo [-n] WORDS [>&2 | > FILE | >> FILE]    cat [FILES]    touch FILES
//	sleep SECONDS|DURATION|infinity             rm [-f] FILES  test -f FILE
//	exit [CODE]   true   false   :              cd, set, export: ignored
//	trap '' TERM        SIGTERM is ignored
//	trap 'exit N' TERM  SIGTERM ends with code N
//	oom                 killed for memory: code 137, reason OOMKilled
//	start-error TEXT    the container cannot be started
//
// with quotes and $VARIABLES. The command /nonexistent cannot be started, as on
// a real runtime. A main command that is anything else (a server,
// a loop) runs until it is stopped.

type verb int

const (
	verbEcho verb = iota
	verbSleep
	verbForever
	verbExit
	verbStatus // true, false
	verbTrap
	verbCat
	verbTouch
	verbRemove
	verbTest
	verbOOM
	verbMissing // an unknown command
)

// step is one command.
type step struct {
	verb   verb
	and    bool // only if what came before succeeded
	or     bool // only if it failed
	code   int32
	hasArg bool // exit: a code was given
	dur    time.Duration
	text   string
	files  []string
	stderr bool
	redir  string // > FILE
	append bool
	trap   trap
}

// trap is what SIGTERM does.
type trap struct {
	set    bool
	ignore bool
	code   int32
}

// program is a parsed command line.
type program struct {
	steps      []step
	startError string
	shell      bool // run by sh -c: a missing command is 127, not an error
}

var shells = []string{"sh", "bash", "ash", "dash"}

// parse parses the command line of a container.
func parse(argv []string, env map[string]string) program {
	if len(argv) == 0 {
		return program{steps: []step{{verb: verbForever}}}
	}
	if len(argv) >= 3 && slices.Contains(shells, path.Base(argv[0])) && argv[1] == "-c" {
		p := program{shell: true}
		for _, cmd := range split(argv[2], env) {
			if cmd.words[0] == "start-error" {
				p.startError = strings.Join(cmd.words[1:], " ")
			}
			p.steps = append(p.steps, compile(cmd))
			if p.steps[len(p.steps)-1].verb == verbMissing && keyword(cmd.words[0]) {
				break // the rest belongs to a loop or a condition
			}
		}
		return p
	}
	p := program{steps: []step{compile(command{words: argv})}}
	switch argv[0] {
	case "start-error":
		p.startError = strings.Join(argv[1:], " ")
	case "/nonexistent":
		p.startError = `runc create failed: unable to start container process: error during container init: exec: "/nonexistent": stat /nonexistent: no such file or directory`
	}
	return p
}

func keyword(w string) bool {
	return slices.Contains([]string{"while", "until", "for", "if", "case", "exec", "{", "("}, w)
}

// command is one simple command of a script.
type command struct {
	words  []string
	and    bool
	or     bool
	redir  string
	append bool
	stderr bool
}

// split cuts a script into commands and words, with quotes, variables and
// redirections resolved.
func split(script string, env map[string]string) []command {
	var (
		out    []command
		cur    command
		word   strings.Builder
		inWord bool
		target bool // the next word is a redirection's file
	)
	endWord := func() {
		if !inWord {
			return
		}
		w := word.String()
		word.Reset()
		inWord = false
		switch {
		case target:
			cur.redir, target = w, false
		case w == ">&2" || w == "1>&2":
			cur.stderr = true
		case w == ">" || w == "1>":
			target = true
		case w == ">>":
			target, cur.append = true, true
		case strings.HasPrefix(w, ">>") && len(w) > 2:
			cur.redir, cur.append = w[2:], true
		case strings.HasPrefix(w, ">") && len(w) > 1:
			cur.redir = w[1:]
		default:
			cur.words = append(cur.words, w)
		}
	}
	endCommand := func(next command) {
		endWord()
		if len(cur.words) > 0 {
			out = append(out, cur)
		}
		cur = next
	}
	expand := func(s string) string {
		return os.Expand(s, func(k string) string { return env[k] })
	}
	for i := 0; i < len(script); i++ {
		ch := script[i]
		switch {
		case ch == '\'':
			end := strings.IndexByte(script[i+1:], '\'')
			if end < 0 {
				end = len(script) - i - 1
			}
			word.WriteString(script[i+1 : i+1+end])
			inWord = true
			i += end + 1
		case ch == '"':
			end := strings.IndexByte(script[i+1:], '"')
			if end < 0 {
				end = len(script) - i - 1
			}
			word.WriteString(expand(script[i+1 : i+1+end]))
			inWord = true
			i += end + 1
		case ch == '\\' && i+1 < len(script):
			i++
			word.WriteByte(script[i])
			inWord = true
		case ch == '&' && strings.HasPrefix(script[i:], "&&"):
			endCommand(command{and: true})
			i++
		case ch == '|' && strings.HasPrefix(script[i:], "||"):
			endCommand(command{or: true})
			i++
		case ch == ';' || ch == '\n':
			endCommand(command{})
		case ch == ' ' || ch == '\t':
			endWord()
		case ch == '$':
			end := i + 1
			if end < len(script) && script[end] == '{' {
				for end < len(script) && script[end] != '}' {
					end++
				}
				end++
			} else {
				for end < len(script) && (script[end] == '_' || isAlnum(script[end])) {
					end++
				}
			}
			end = min(end, len(script))
			word.WriteString(expand(script[i:end]))
			inWord = true
			i = end - 1
		default:
			word.WriteByte(ch)
			inWord = true
		}
	}
	endCommand(command{})
	return out
}

func isAlnum(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// compile makes a step of a command.
func compile(cmd command) step {
	s := step{and: cmd.and, or: cmd.or, stderr: cmd.stderr, redir: cmd.redir, append: cmd.append}
	name, args := path.Base(cmd.words[0]), cmd.words[1:]
	switch name {
	case "echo":
		s.verb, s.text = verbEcho, strings.Join(args, " ")+"\n"
		if len(args) > 0 && args[0] == "-n" {
			s.text = strings.Join(args[1:], " ")
		}
	case "sleep":
		s.verb = verbForever
		if len(args) == 1 {
			if d, ok := duration(args[0]); ok {
				s.verb, s.dur = verbSleep, d
			}
		}
	case "exit":
		s.verb = verbExit
		s.code, s.hasArg = exitCode(args)
	case "true", ":", "cd", "set", "export", "umask":
		s.verb = verbStatus
	case "false":
		s.verb, s.code = verbStatus, 1
	case "trap":
		s.verb = verbTrap
		if len(args) >= 2 {
			s.trap = trap{set: true, ignore: strings.TrimSpace(args[0]) == ""}
			if words := strings.Fields(args[0]); len(words) > 0 && words[0] == "exit" {
				s.trap.code, _ = exitCode(words[1:])
			}
		}
	case "cat":
		s.verb, s.files = verbCat, args
	case "touch":
		s.verb, s.files = verbTouch, args
	case "rm":
		s.verb = verbRemove
		for _, a := range args {
			if !strings.HasPrefix(a, "-") {
				s.files = append(s.files, a)
			} else if strings.Contains(a, "f") {
				s.hasArg = true
			}
		}
	case "test", "[":
		s.verb = verbTest
		if len(args) >= 2 && (args[0] == "-f" || args[0] == "-e") {
			s.files = args[1:2]
		}
	case "oom":
		s.verb = verbOOM
	default:
		s.verb, s.text = verbMissing, cmd.words[0]
	}
	return s
}

func exitCode(args []string) (code int32, given bool) {
	if len(args) == 0 {
		return 0, false
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2, true // as a shell does for `exit abc`
	}
	return int32(n & 0xff), true
}

// duration reads what sleep accepts: seconds, or a number with a unit.
func duration(s string) (time.Duration, bool) {
	if n, err := strconv.ParseFloat(s, 64); err == nil && n >= 0 && n < 1e9 {
		return time.Duration(n * float64(time.Second)), true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// A machine runs a program's steps against a container.
type machine struct {
	program
	at     int
	status int32
	trap   trap

	main bool // the container's own command: an unknown command runs for ever
	fs   *container
	out  func(stderr bool, text string)
	in   string // what cat without files reads
}

// readsStdin reports whether the program reads its input.
func (m *machine) readsStdin() bool {
	return slices.ContainsFunc(m.steps, func(s step) bool { return s.verb == verbCat && len(s.files) == 0 })
}

// verdict is how a run of steps ended.
type verdict struct {
	wait    time.Duration // > 0: call again after this
	forever bool          // nothing will happen by itself
	done    bool
	code    int32
	oom     bool
	missing string // exec of a command that does not exist
}

// run executes steps until one takes time or the program ends.
func (m *machine) run() verdict {
	for m.at < len(m.steps) {
		s := m.steps[m.at]
		m.at++
		if s.and && m.status != 0 || s.or && m.status == 0 {
			continue
		}
		switch s.verb {
		case verbEcho:
			m.status = m.write(s, s.text)
		case verbSleep:
			m.status = 0
			if s.dur > 0 {
				return verdict{wait: s.dur}
			}
		case verbForever:
			return verdict{forever: true}
		case verbExit:
			if !s.hasArg {
				return verdict{done: true, code: m.status}
			}
			return verdict{done: true, code: s.code}
		case verbStatus:
			m.status = s.code
		case verbTrap:
			m.trap, m.status = s.trap, 0
		case verbCat:
			m.status = m.cat(s)
		case verbTouch:
			m.status = m.each(s.files, func(f string) bool { return m.fs.appendFile(f, "", true) == nil })
		case verbRemove:
			m.status = m.each(s.files, func(f string) bool { return m.fs.removeFile(f) == nil || s.hasArg })
		case verbTest:
			m.status = 1
			if len(s.files) == 1 {
				m.status = m.each(s.files, m.fs.hasFile)
			}
		case verbOOM:
			return verdict{done: true, code: 137, oom: true}
		case verbMissing:
			if m.main {
				return verdict{forever: true}
			}
			if !m.shell {
				return verdict{missing: s.text}
			}
			m.out(true, "sh: "+s.text+": not found\n")
			m.status = 127
		}
	}
	return verdict{done: true, code: m.status}
}

func (m *machine) each(files []string, do func(string) bool) int32 {
	for _, f := range files {
		if !do(f) {
			m.out(true, f+": No such file or directory\n")
			return 1
		}
	}
	return 0
}

func (m *machine) write(s step, text string) int32 {
	switch {
	case s.redir == "/dev/stderr" || s.stderr:
		m.out(true, text)
	case s.redir == "" || s.redir == "/dev/stdout":
		m.out(false, text)
	case s.redir == "/dev/null":
	default:
		if err := m.fs.appendFile(s.redir, text, s.append); err != nil {
			m.out(true, "sh: can't create "+s.redir+": "+err.Error()+"\n")
			return 1
		}
	}
	return 0
}

func (m *machine) cat(s step) int32 {
	if len(s.files) == 0 {
		return m.write(s, m.in)
	}
	for _, f := range s.files {
		text, err := m.fs.readFile(f)
		if err != nil {
			m.out(true, "cat: can't open '"+f+"': No such file or directory\n")
			return 1
		}
		if code := m.write(s, string(text)); code != 0 {
			return code
		}
	}
	return 0
}
