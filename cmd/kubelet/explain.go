package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"keelson/internal/config"
	"keelson/internal/pods/explain"
)

const explainUsage = `kubelet explain shows why a pod on this node is, or is not, running.

It asks the kubelet that runs on this machine, through a socket below its root
directory; the API server is not needed. Only the administrator of the machine
may ask.

Usage:
  kubelet explain                       all pods, those in trouble first
  kubelet explain POD [-n NAMESPACE]    one pod: what it waits for, since when,
                                        the last error, the next retry, and where
                                        the time of its start went
  kubelet explain NAMESPACE/POD         the same

Examples:
  kubelet explain web
  kubelet explain coredns-7d9 -n kube-system --html start.html
  kubelet explain web | grep ^waits
  kubelet explain web -o json | jq -r .verdict

Flags:
`

// request is one request to the agent's explain socket.
type request struct {
	namespace, name string
	output, page    string
	socket          string
	width           int
	http            *http.Client
}

// runExplain is the command "kubelet explain". It returns the exit status: 0 after a
// response, else 1.
func runExplain(args []string, out, errs io.Writer) int {
	var a request
	var root string
	fs := pflag.NewFlagSet("kubelet explain", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.SortFlags = false
	fs.StringVarP(&a.namespace, "namespace", "n", "",
		"namespace of the pod; not needed if the pod's name is unique on the node")
	fs.StringVarP(&a.output, "output", "o", "text", "text or json")
	fs.StringVar(&a.page, "html", "", "write a self-contained HTML page to this file; - is standard output")
	fs.StringVar(&root, "root-dir", config.DefaultRootDir, "root directory of the kubelet")
	fs.IntVar(&a.width, "width", width(), "columns of the output")
	help := fs.BoolP("help", "h", false, "show this help")
	fail := func(err error) int {
		fmt.Fprintln(errs, "kubelet explain:", err)
		return 1
	}
	if err := fs.Parse(args); err != nil {
		return fail(fmt.Errorf("%w (kubelet explain --help)", err))
	}
	if *help {
		fmt.Fprint(out, explainUsage+fs.FlagUsages())
		return 0
	}
	switch rest := fs.Args(); {
	case len(rest) > 1:
		return fail(fmt.Errorf("expected one pod, got %s (kubelet explain --help)", strings.Join(rest, " ")))
	case len(rest) == 1:
		a.name = rest[0]
		if ns, name, both := strings.Cut(a.name, "/"); both {
			if a.namespace != "" && a.namespace != ns {
				return fail(fmt.Errorf("namespace %s of the pod's name is not %s of --namespace", ns, a.namespace))
			}
			a.namespace, a.name = ns, name
		}
	case a.page != "":
		return fail(errors.New("--html needs the name of a pod"))
	}
	if a.output != "text" && a.output != "json" {
		return fail(fmt.Errorf("--output is text or json, not %s", a.output))
	}
	a.socket = filepath.Join(root, explain.Socket)
	a.http = &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
			},
		},
	}
	if err := a.answer(out); err != nil {
		return fail(err)
	}
	return 0
}

// width returns the width of the terminal, or a default for files.
func width() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		return w
	}
	return 120
}

func (a *request) answer(out io.Writer) error {
	if a.name == "" {
		return a.list(out)
	}
	if a.namespace == "" {
		if err := a.findNamespace(); err != nil {
			return err
		}
	}
	var p explain.Pod
	raw, err := a.get("/"+url.PathEscape(a.namespace)+"/"+url.PathEscape(a.name), &p)
	if err != nil {
		return err
	}
	if a.page != "" {
		return a.write(out, explain.Page(&p))
	}
	if a.output == "json" {
		_, err = out.Write(raw)
		return err
	}
	_, err = io.WriteString(out, explain.Text(&p, a.width))
	return err
}

// write writes the page to the file of --html.
func (a *request) write(out io.Writer, page string) error {
	if a.page == "-" {
		_, err := io.WriteString(out, page)
		return err
	}
	if err := os.WriteFile(a.page, []byte(page), 0o644); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	_, err := fmt.Fprintf(out, "wrote page of %s/%s to %s\n", a.namespace, a.name, a.page)
	return err
}

func (a *request) list(out io.Writer) error {
	var list explain.List
	if _, err := a.get("", &list); err != nil {
		return err
	}
	if a.namespace != "" {
		list.Pods = slices.DeleteFunc(list.Pods, func(p explain.Line) bool { return p.Namespace != a.namespace })
	}
	if a.output == "json" {
		return json.NewEncoder(out).Encode(list)
	}
	if len(list.Pods) == 0 {
		_, err := fmt.Fprintf(out, "node %s has no pods%s\n",
			list.Node, map[bool]string{true: " in namespace " + a.namespace}[a.namespace != ""])
		return err
	}
	_, err := io.WriteString(out, explain.TextList(&list))
	return err
}

// findNamespace searches the pod in all namespaces.
func (a *request) findNamespace() error {
	var list explain.List
	if _, err := a.get("", &list); err != nil {
		return err
	}
	var in []string
	for _, p := range list.Pods {
		if p.Name == a.name {
			in = append(in, p.Namespace)
		}
	}
	switch len(in) {
	case 0:
		return fmt.Errorf("no pod %q on node %s; kubelet explain without a name lists all pods", a.name, list.Node)
	case 1:
		a.namespace = in[0]
		return nil
	}
	return fmt.Errorf("pods %q exist in the namespaces %s: select one with -n", a.name, strings.Join(in, ", "))
}

// get sends a request to the agent.
func (a *request) get(path string, into any) ([]byte, error) {
	resp, err := a.http.Get("http://kubelet/debug/keelson/pods" + path)
	if err != nil {
		return nil, a.unreachable(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	return body, nil
}

// unreachable explains a failed connection and what to do.
func (a *request) unreachable(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to use %s: only root has it; try sudo", a.socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no kubelet listens at %s: is it running, and is --root-dir its root directory?", a.socket)
	}
	return fmt.Errorf("connect to the kubelet at %s: %w", a.socket, err)
}
