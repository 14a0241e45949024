package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/rig"
)

const (
	nodeName = "keelson"
	// pollInterval is the interval of requests: the kubelet's server offers no watch.
	pollInterval = 200 * time.Millisecond
	// patience is how long the first pods may take before the table is shown although they are not all Ready.
	patience = 2 * time.Minute
	// slowness is how much longer than usual the kubelet and its pods may take on a busy machine.
	slowness = 30 * time.Second
)

// show is one run of the command: a rig with a runtime, a kubelet and its pods.
type show struct {
	options
	*reporter
	rig   *rig.Rig
	again <-chan os.Signal // a signal cuts the termination of the pods short

	runtime *rig.Runtime
	kubelet *rig.Kubelet
	mirror  mirror
	history *history
	log     *follower
}

// run starts everything, shows it, reports changes until ctx ends, and stops the pods.
func (s *show) run(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	handed := time.Now()
	if _, err := s.mirror.sync(); err != nil {
		return err
	}
	pods, err := s.first(ctx)
	if err == nil {
		err = s.present(ctx, pods, handed)
	}
	if err == nil {
		err = s.watch(ctx)
	}
	if errors.Is(err, errEnded) {
		return err // no agent is left that could stop the pods in order
	}
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, s.stop())
}

// start starts containerd and the kubelet, with no pod yet.
func (s *show) start(ctx context.Context) error {
	s.step("starting containerd; everything lies in %s", s.rig.Dir)
	var err error
	if s.runtime, err = s.rig.StartRuntime(ctx, rig.RuntimeConfig{Source: s.options.runtime}); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	s.step("containerd %s answers and has the images; starting the kubelet", s.runtime.Parts.Version)
	s.kubelet, err = s.rig.StartKubelet(ctx,
		rig.KubeletConfig{Binary: s.options.kubelet, Node: nodeName, Edit: func(c *kubeletconfig.KubeletConfiguration) {
			c.ClusterDNS = nil // no server answers there: pods get the machine's name servers
			c.ResolverConfig = ptr("/etc/resolv.conf")
		}})
	if err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	s.mirror = mirror{from: s.examples, to: s.kubelet.Manifests}
	s.history = newHistory()
	s.log = &follower{file: s.kubelet.LogFile, logged: map[string]bool{},
		replace:  strings.NewReplacer(s.kubelet.Manifests, s.examples),
		passOver: func(pod, reason string) bool { return reason == "Unhealthy" && s.history.starting(pod, time.Now()) }}
	return s.log.skipToEnd()
}

// first waits until all pods are Ready or completed. Problems are printed as soon as they are known.
func (s *show) first(ctx context.Context) ([]podState, error) {
	files, err := manifests(s.mirror.to)
	if err != nil {
		return nil, err
	}
	s.step("the kubelet answers; it is given the %d manifests of %s", len(files), s.folder())
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPatience)
	defer cancel()
	var pods []podState
	err = s.each(ctx, func() (bool, error) {
		var err error
		if pods, err = s.poll(ctx); err != nil {
			return false, err
		}
		for _, p := range pods {
			if !p.settled() {
				return false, nil
			}
		}
		return len(pods) == len(files), nil
	})
	if errors.Is(context.Cause(ctx), errPatience) {
		s.step("not all pods are Ready after %v; continuing", patience)
		return pods, nil
	}
	return pods, err
}

var errPatience = errors.New("not Ready in time")

// present shows the pods: a table, the answer to a request, a log line, and hints.
func (s *show) present(ctx context.Context, pods []podState, handed time.Time) error {
	if len(pods) == 0 {
		s.step("no pods: put manifests into %s", s.folder())
	}
	s.plain("\n" + table(pods, time.Now()) + "\n")
	list, err := s.pods(ctx)
	if err != nil {
		return err
	}
	address := ""
	for i := range list {
		p := &list[i]
		c, port, ok := webPort(p)
		if !ok || !podStateOf(p).Ready {
			continue
		}
		address = fmt.Sprintf("http://%s:%d/", p.Status.PodIP, port)
		before, err := s.lastLine(ctx, p, c)
		if err != nil {
			return err
		}
		answer, err := get(ctx, address)
		if err != nil {
			return fmt.Errorf("ask %s at %s: %w", shown(p), address, err)
		}
		s.plain("GET " + address + " answers\n" + indent(answer))
		line, err := s.nextLine(ctx, p, c, before)
		if err != nil {
			return err
		}
		s.plain("and the last line of the log of its container " + c + " is\n" + indent(line))
		break
	}
	s.plain(s.hints(address))
	return nil
}

// lastLine returns the last line of a container's log.
func (s *show) lastLine(ctx context.Context, p *v1.Pod, container string) (string, error) {
	line, err := s.kubelet.Get(ctx, fmt.Sprintf("/containerLogs/%s/%s/%s?tailLines=1", p.Namespace, p.Name, container))
	if err != nil {
		return "", fmt.Errorf("read log of container %s of %s: %w", container, shown(p), err)
	}
	return line, nil
}

// nextLine waits until the last line of a container's log has changed, as it usually does shortly after a request, and
// returns it. If it does not change within ten seconds, nextLine returns the old line.
func (s *show) nextLine(ctx context.Context, p *v1.Pod, container, before string) (line string, err error) {
	moment, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errMoment)
	defer cancel()
	err = s.each(moment, func() (bool, error) {
		now, err := s.lastLine(ctx, p, container)
		line = now
		return line != before, err
	})
	if errors.Is(err, errMoment) {
		return line, nil
	}
	return line, err
}

var errMoment = errors.New("nothing within a moment")

// hints returns suggestions for the user.
func (s *show) hints(address string) string {
	var b strings.Builder
	b.WriteString("\nTry next:\n")
	hint := func(do, what string) { fmt.Fprintf(&b, "  %-40s %s\n", do, what) }
	hint("edit "+filepath.Join(s.folder(), "web.yaml"), "the pod is replaced; it is shown here")
	hint("add a manifest to "+s.folder()+"/", "with image keelson.local/demo:1: a new pod")
	if address != "" {
		hint("curl "+address, "the same request once more")
	}
	hint("bin/kubelet explain --root-dir "+s.kubelet.Root, "why each pod runs, or does not")
	hint("ls "+s.kubelet.PodLogs, "logs of the containers")
	hint("ls "+s.rig.Logs, "logs of kubelet and containerd")
	hint("Ctrl-C", "stops the pods and removes all of it")
	b.WriteString("\n")
	return b.String()
}

// folder returns the path of the examples, relative to the working directory if they are below it.
func (s *show) folder() string {
	wd, err := os.Getwd()
	if err != nil {
		return s.examples
	}
	rel, err := filepath.Rel(wd, s.examples)
	if err != nil || strings.HasPrefix(rel, "..") {
		return s.examples
	}
	return rel
}

// watch reports changes until ctx ends.
func (s *show) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type change struct {
		files []string
		err   error
	}
	changes := make(chan change)
	ended := make(chan error, 1)
	go func() {
		ended <- s.mirror.follow(ctx, func(files []string, err error) {
			select {
			case changes <- change{files, err}:
			case <-ctx.Done():
			}
		})
	}()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return <-ended
		case err := <-ended:
			return err
		case c := <-changes:
			if c.err != nil {
				s.step("%v", c.err)
				continue
			}
			s.step("changed: %s", strings.Join(c.files, ", "))
		case <-s.kubelet.Done():
			return s.kubeletEnded()
		case <-s.runtime.Done():
			return s.runtimeEnded()
		case <-tick.C:
			if _, err := s.poll(ctx); err != nil && ctx.Err() == nil && !closed(s.kubelet.Done()) {
				return err
			}
		}
	}
}

// errEnded means that a program has ended that should keep running.
var errEnded = errors.New("ended by itself")

func (s *show) kubeletEnded() error {
	return fmt.Errorf("the kubelet %w; its pods were stopped by force. Last log lines:\n%s", errEnded,
		tail(s.kubelet.LogFile, 5))
}

func (s *show) runtimeEnded() error {
	return fmt.Errorf("containerd %w; its containers were stopped by force. Last log lines:\n%s", errEnded,
		tail(filepath.Join(s.rig.Logs, "containerd.log"), 5))
}

// poll reads the pods and the kubelet's log, and reports what is new.
func (s *show) poll(ctx context.Context) ([]podState, error) {
	list, err := s.pods(ctx)
	if err != nil {
		return nil, err
	}
	pods := podStates(list)
	for _, c := range s.history.update(pods, time.Now()) {
		s.step("%s", c)
	}
	lines, err := s.log.more()
	for _, l := range lines {
		s.step("%s", l)
	}
	return pods, err
}

// stop removes the manifests, so that the kubelet terminates its pods, and waits for that: for the longest grace period
// and slowness, or until another signal.
func (s *show) stop() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	limit := slowness
	for _, p := range podStates(pods) {
		limit = max(limit, p.Grace+slowness)
	}
	s.plain("\n")
	s.step("stopping the pods in order, for %v at most; once more Ctrl-C ends that", limit)
	ctx, cancelLimit := context.WithTimeout(ctx, limit)
	defer cancelLimit()
	go func() {
		select {
		case <-s.again:
			cancel()
		case <-ctx.Done():
		}
	}()
	began := time.Now()
	if err := s.mirror.clear(); err != nil {
		return err
	}
	live := map[string]bool{}
	err = s.each(ctx, func() (bool, error) {
		now, err := s.running(ctx)
		if err != nil {
			return false, err
		}
		for name := range live {
			if !now[name] {
				s.step("%s has stopped, after %.1f s", name, time.Since(began).Seconds())
			}
		}
		live = now
		return len(now) == 0, nil
	})
	if ctx.Err() != nil {
		s.step("%d pods are left; they are stopped by force", len(live))
		return nil
	}
	return err
}

// each polls until done reports true.
func (s *show) each(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ok, err := done()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ok || err != nil && !closed(s.kubelet.Done()) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.kubelet.Done():
			return s.kubeletEnded()
		case <-s.runtime.Done():
			return s.runtimeEnded()
		case <-tick.C:
		}
	}
}

// pods returns the pods that should run, with their statuses.
func (s *show) pods(ctx context.Context) ([]v1.Pod, error) { return s.list(ctx, "/pods") }

// running returns the names of the pods that the runtime runs.
func (s *show) running(ctx context.Context) (map[string]bool, error) {
	list, err := s.list(ctx, "/runningpods/")
	out := map[string]bool{}
	for i := range list {
		out[shown(&list[i])] = true
	}
	return out, err
}

func (s *show) list(ctx context.Context, path string) ([]v1.Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, slowness,
		fmt.Errorf("no answer to %s within %v; its log is %s", path, slowness, s.kubelet.LogFile))
	defer cancel()
	text, err := s.kubelet.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read the kubelet's answer to %s: %w", path, err)
	}
	return list.Items, nil
}

// webPort returns the first container with a port.
func webPort(p *v1.Pod) (container string, port int32, ok bool) {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			return c.Name, port.ContainerPort, true
		}
	}
	return "", 0, false
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, slowness)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return string(body), err
}

func indent(text string) string {
	text = strings.TrimRight(text, "\n")
	return "  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
}

func ptr[T any](v T) *T { return &v }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
