package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"keelson/test/kit/await"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// asKubelet is the environment variable that makes the test binary run as the kubelet.
const asKubelet = "KEELSON_TEST_AS_KUBELET"

func TestMain(m *testing.M) {
	if os.Getenv(asKubelet) != "" {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(m.Run())
}

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// alone is a configuration that changes little on the machine.
const alone = head + `authentication: {webhook: {enabled: false}, anonymous: {enabled: false}}
authorization: {mode: AlwaysAllow}
enableServer: false
healthzPort: 0
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
makeIPTablesUtilChains: false
failSwapOn: false
`

// kubelet runs the program to its end.
func kubelet(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, append([]string{"--hostname-override=n1"}, args...)...)
	cmd.Env = append(os.Environ(), asKubelet+"=1")
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// missingPlugin is the configuration of a credential provider plugin that is not installed.
const missingPlugin = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers: [{name: missing, matchImages: [r.io], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}]
`

// TestConfigurationErrors has mistakes of first-time users. Each one results in one message with the file, the
// field, the value and the cause.
func TestConfigurationErrors(t *testing.T) {
	parity.Proves(t, "CFG-15")
	parity.ProvesPart(t, 2, "CFG-108")
	dir := t.TempDir()
	good := write(t, dir+"/good.yaml", alone)
	notASocket := write(t, dir+"/runtime.sock", "")
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"a file that is not there", []string{"--config=" + dir + "/no.yaml"},
			[]string{"--config: read configuration file: open " + dir + "/no.yaml: no such file or directory"}},
		{"no YAML", []string{"--config=" + write(t, dir+"/a.yaml", head+"port: [\n")},
			[]string{dir + "/a.yaml", "yaml: line"}},
		{"a wrong kind", []string{"--config=" + write(t, dir+"/b.yaml", "apiVersion: v1\nkind: Pod\n")},
			[]string{dir + `/b.yaml: kind: "Pod" must be KubeletConfiguration`}},
		{"values that are wrong in several places", []string{
			"--config=" + write(t, dir+"/c.yaml", alone+"maxPods: -1\nclusterDNS: no\n"),
			"--image-gc-high-threshold=200",
		},
			[]string{
				dir + "/c.yaml: maxPods: -1 must not be negative",
				dir + "/c.yaml: clusterDNS: ",
				"flag --image-gc-high-threshold: imageGCHighThresholdPercent: 200 must be between 0 and 100",
			}},
		{"files it names that are not there", []string{"--config=" + write(t, dir+"/d.yaml", strings.Replace(alone,
			"anonymous: {enabled: false}", "x509: {clientCAFile: "+dir+"/ca.crt}",
			1)+"tlsCertFile: "+dir+"/crt\ntlsPrivateKeyFile: "+dir+"/key\n"), "--kubeconfig=" + dir + "/kc"},
			[]string{
				dir + `/d.yaml: authentication.x509.clientCAFile: "` + dir + `/ca.crt" must be a file that exists`,
				dir + `/d.yaml: tlsCertFile: "` + dir + `/crt" must be a file that exists`,
				`--kubeconfig: "` + dir + `/kc" must be a file that exists`,
			}},
		{"a certificate that is none", []string{"--config=" + write(t, dir+"/e.yaml", alone+"tlsCertFile: "+good+
			"\ntlsPrivateKeyFile: "+good+"\n")},
			[]string{"e.yaml: tlsCertFile: ", "must be a certificate for the key in tlsPrivateKeyFile, " + good}},
		{"a runtime that is no socket", []string{"--config=" + good, "--container-runtime-endpoint=unix://" + notASocket},
			[]string{`flag --container-runtime-endpoint: containerRuntimeEndpoint: "unix://` + notASocket +
				`" must be the socket of a container runtime, and ` + notASocket + " is not a socket"}},
		{"a runtime that is no endpoint", []string{"--config=" + good, "--container-runtime-endpoint=tcp://1.2.3.4:5"},
			[]string{"containerRuntimeEndpoint: \"tcp://1.2.3.4:5\" must be the socket of a container runtime: "}},
		{"a plugin that is not there", []string{
			"--config=" + good,
			"--image-credential-provider-bin-dir=" + dir,
			"--image-credential-provider-config=" + write(t, dir+"/p.yaml", missingPlugin),
		},
			[]string{`--image-credential-provider-config: "` + dir + `/p.yaml" must describe plugins that are in ` +
				dir +
				`: find credential provider missing: no such file in ` + dir}},
		{"no client is authorized",
			[]string{"--config=" + write(t, dir+"/f.yaml", strings.Replace(alone, "enableServer: false\n", "", 1))},
			[]string{"authentication: no authentication method configured: set x509.clientCAFile, or enable webhook or " +
				"anonymous"}},
		{"a flag that is none", []string{"--confg=x"},
			[]string{"unknown flag: --confg (kubelet --help lists those that there are)"}},
		{"drop-ins that are not there", []string{"--config=" + good, "--config-dir=" + dir + "/none"},
			[]string{"--config-dir: list drop-in files: lstat " + dir + "/none: no such file or directory"}},
		{"values of a wrong type",
			[]string{"--config=" + write(t, dir+"/g.yaml", alone+"cgroupDriver: 3\nclusterDNS: 1.2.3.4\n")}, []string{
				dir + "/g.yaml: cgroupDriver: 3 must be string, is a number", dir +
					`/g.yaml: clusterDNS: "1.2.3.4" must be a list of string, is a string`}},
		{"a kubeconfig that is none", []string{"--config=" + good, "--kubeconfig=" + write(t, dir+"/kc1", "clusters: [")},
			[]string{`--kubeconfig: "` + dir + `/kc1" must be a kubeconfig: `}},
		{"an empty kubeconfig", []string{"--config=" + good, "--kubeconfig=" + write(t, dir+"/kc2", "")},
			[]string{`--kubeconfig: "` + dir +
				`/kc2" must be a kubeconfig whose current-context, "", is one of its contexts`}},
		{"a kubeconfig without a server", []string{
			"--config=" + good,
			"--kubeconfig=" +
				write(t, dir+"/kc3", "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"),
		},
			[]string{`--kubeconfig: "` + dir +
				`/kc3" must be a kubeconfig with a server for the cluster "c", which its context "x" names`}},
		{"a word", []string{"start"}, []string{`unknown command "start"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, args := range [][]string{tc.args, append([]string{"--validate"}, tc.args...)} {
				code, out, complaints := kubelet(t, args...)
				if code != 1 || out != "" {
					t.Errorf("%q: exit status %d, output %q", args, code, out)
				}
				for _, want := range tc.says {
					// A log escapes quotes.
					if !strings.Contains(complaints, want) &&
						!strings.Contains(strings.ReplaceAll(complaints, `\"`, `"`), want) {
						t.Errorf("%q does not say %s:\n%s", args, want, complaints)
					}
				}
			}
		})
	}
	code, out, complaints := kubelet(t, "--validate", "--config="+good, "--max-pods=7")
	if code != 0 || out != "the configuration is valid\n" ||
		!strings.Contains(complaints, "note: Flag --max-pods has been deprecated") {
		t.Errorf("a good one: %d %q %q", code, out, complaints)
	}
}

// TestFailedSetupEndsProcess: the exit status is 1. The event is tested elsewhere.
func TestFailedSetupEndsProcess(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-11")
	dir := t.TempDir()
	root := write(t, dir+"/root", "")
	code, _, complaints := kubelet(t, "--config="+write(t, dir+"/k.yaml", alone), "--root-dir="+root)
	if code != 1 || !strings.Contains(complaints, "make directory "+root) {
		t.Errorf("exit status %d:\n%s", code, complaints)
	}
}

func TestShowConfig(t *testing.T) {
	dir := t.TempDir()
	// With drop-ins, an empty list in the configuration file is replaced by the default, as upstream.
	text := strings.Replace(alone, "enforceNodeAllocatable: []", "enforceNodeAllocatable: [none]", 1)
	file := write(t, dir+"/k.yaml", text+"staticPodURLHeader: {Authorization: [secret]}\n")
	if err := os.Mkdir(dir+"/d", 0o755); err != nil {
		t.Fatal(err)
	}
	drop := write(t, dir+"/d/10.conf", head+"clusterDNS: [10.0.0.10]\nevictionHard: {memory.available: 1Gi}\n")
	args := []string{"--config=" + file, "--config-dir=" + dir + "/d", "--max-pods=7"}
	code, out, _ := kubelet(t, append(args, "--show-config")...)
	lines := map[string]string{}
	for _, l := range strings.Split(out, "\n") {
		l, from, _ := strings.Cut(l, "  # ")
		lines[strings.TrimSpace(l)] = from
	}
	for line, want := range map[string]string{
		"maxPods: 7":                    "flag --max-pods",
		`clusterDNS: ["10.0.0.10"]`:     drop,
		"enableServer: false":           file,
		"port: 10250":                   "default",
		`memory.available: "1Gi"`:       drop,
		`Authorization: ["<masked>"]`:   file,
		"# --root-dir=/var/lib/kubelet": "",
		"# node name: n1":               "",
	} {
		if from, there := lines[line]; !there || from != want {
			t.Errorf("%s comes from %q (shown %v), want %q", line, from, there, want)
		}
	}
	// The output is a configuration file with the same effect.
	shown := write(t, dir+"/shown.yaml", out)
	code2, again, complaints := kubelet(t, "--config="+shown, "--show-config")
	plain := func(s string) string {
		var b strings.Builder
		for _, l := range strings.Split(s, "\n") {
			l, _, _ = strings.Cut(l, "  # ")
			if !strings.HasPrefix(l, "#") {
				b.WriteString(strings.TrimRight(l, " ") + "\n")
			}
		}
		return b.String()
	}
	if code != 0 || code2 != 0 || plain(again) != plain(out) {
		t.Errorf("%d, %d: %s\n%s\n%s", code, code2, complaints, plain(out), plain(again))
	}
}

// running is a kubelet process with a fake runtime, and a socket that receives its notifications
// for the service manager.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	cri    *fakecri.Runtime
	log    chan string
	states chan string
}

// begin starts a kubelet. Its mounts are in a mount namespace of its own, so that none is left
// after the test.
func begin(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	need.Root(t, "mounting")
	dir, err := os.MkdirTemp("", "kubelet") // the length of socket paths is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cri := fakecri.New(fakecri.Options{})
	if err := cri.Listen(dir + "/cri.sock"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cri.Disconnect)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cri: cri, log: make(chan string, 1000), states: make(chan string, 1000)}
	if err := os.MkdirAll(dir+"/root/device-plugins", 0o750); err != nil { // in place of that of the machine
		t.Fatal(err)
	}
	r.cmd = exec.Command(exe, append([]string{
		"--hostname-override=n1", "--root-dir=" + dir + "/root", "--cert-dir=" + dir + "/pki",
		"--container-runtime-endpoint=unix://" + dir + "/cri.sock",
	}, args...)...)
	r.cmd.Env = append(append(os.Environ(), asKubelet+"=1", "NOTIFY_SOCKET="+dir+"/notify"), env...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	go func() {
		defer close(r.log)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			r.log <- s.Text()
		}
	}()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := manager.Read(buf)
			if err != nil {
				return
			}
			r.states <- string(buf[:n])
		}
	}()
	return r
}

// until waits for a log line or a state that contains want.
func (r *running) until(c chan string, want string) string {
	r.t.Helper()
	var seen []string
	timeout := time.After(3 * time.Minute)
	for {
		select {
		case s, ok := <-c:
			if strings.Contains(s, want) {
				return s
			}
			if !ok {
				r.t.Fatalf("it ended without %q:\n%s", want, strings.Join(seen, "\n"))
			}
			seen = append(seen, s)
		case <-timeout:
			r.t.Fatalf("no %q within 3 min:\n%s", want, strings.Join(seen, "\n"))
		}
	}
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// TestServiceManager: the service manager is notified when the agent is ready, alive (watchdog),
// reloading and stopping.
func TestServiceManager(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-05")
	dir := t.TempDir()
	file := write(t, dir+"/k.yaml", alone)
	r := begin(t, []string{"WATCHDOG_USEC=2000000"}, "--config="+file)
	r.until(r.states, "READY=1")
	r.until(r.states, "WATCHDOG=1")
	r.until(r.states, "WATCHDOG=1")

	write(t, file,
		alone+"logging: {verbosity: 6}\nimageGCHighThresholdPercent: 90\nmaxPods: 5\nimageGCLowThresholdPercnt: 80\n")
	r.signal(syscall.SIGHUP)
	if s := r.until(r.states, "RELOADING=1"); !strings.Contains(s, "MONOTONIC_USEC=") {
		t.Errorf("reloading: %q", s)
	}
	r.until(r.states, "READY=1")
	r.until(r.log, `unknown field \"imageGCLowThresholdPercnt\"`)
	r.until(r.log, "reloaded configuration")
	for _, want := range []string{
		"field=logging.verbosity value=6 before=0 origin=" + file,
		"field=imageGCHighThresholdPercent value=90 before=85",
	} {
		if s := r.until(r.log, "applied setting"); !strings.Contains(s, want) {
			t.Errorf("logged %s, want %s", s, want)
		}
	}
	if s := r.until(r.log, "needs a restart"); !strings.Contains(s, "field=maxPods value=5 inForce=110 origin="+file) {
		t.Errorf("logged %s", s)
	}

	write(t, file, alone+"maxPods: -5\n")
	r.signal(syscall.SIGHUP)
	if s := r.until(r.log, "failed to reload configuration"); !strings.Contains(s, file+": maxPods: -5 must not be "+
		"negative") {
		t.Errorf("logged %s", s)
	}

	r.signal(syscall.SIGTERM)
	r.until(r.states, "STOPPING=1")
	if err := r.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// TestSecondSIGTERM: a second SIGTERM ends the process at once, even if it waits for something.
func TestSecondSIGTERM(t *testing.T) {
	dir := t.TempDir()
	pipe := dir + "/kubeconfig"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r := begin(t, nil, "--config="+write(t, dir+"/k.yaml", alone), "--kubeconfig="+pipe)
	hold, err := os.OpenFile(pipe, os.O_WRONLY, 0) // the agent reads until this is closed
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	timeout, again := time.After(30*time.Second), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-ended:
			if how := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !how.Signaled() ||
				how.Signal() != syscall.SIGTERM {
				t.Errorf("it ended with %v", r.cmd.ProcessState)
			}
			return
		case <-again.C:
			_ = r.cmd.Process.Signal(syscall.SIGTERM) // the process may have exited already
		case <-timeout:
			_ = r.cmd.Process.Kill()
			<-ended
			t.Fatal("it does not end, however often it is asked to")
		}
	}
}

// TestPortInUse: the message names the address.
func TestPortInUse(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-01")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	port := l.Addr().(*net.TCPAddr).Port
	text := strings.NewReplacer("enableServer: false", fmt.Sprintf("address: 127.0.0.1\nport: %d", port),
		"anonymous: {enabled: false}", "anonymous: {enabled: true}").Replace(alone)
	r := begin(t, nil, "--config="+write(t, dir+"/k.yaml", text))
	if s := r.until(r.log,
		"failed to run kubelet"); !strings.Contains(s, fmt.Sprintf("listen on 127.0.0.1:%d (secure port)", port)) ||
		!strings.Contains(s, "address already in use") {
		t.Errorf("logged %s", s)
	}
	if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
}

// TestServerAddress: it listens at the configured address only, and not at all if it is disabled.
func TestServerAddress(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-16")
	parity.ProvesPart(t, 3, "CFG-22")
	dir := t.TempDir()
	served := strings.Replace(alone, "anonymous: {enabled: false}", "anonymous: {enabled: true}", 1)
	for config, want := range map[string][2]bool{ // at 127.0.0.1, and at 127.0.0.2
		"enableServer: true\naddress: 127.0.0.1":  {true, false},
		"address: 127.0.0.2":                      {false, true}, // it serves by default
		"enableServer: false\naddress: 127.0.0.1": {false, false},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		text := strings.Replace(served, "enableServer: false", fmt.Sprintf("%s\nport: %d", config, port), 1)
		r := begin(t, nil, "--config="+write(t, dir+"/k.yaml", text))
		if want == [2]bool{} {
			r.until(r.states, "READY=1")
		} else {
			r.until(r.log, "msg=\"started listening\" port=secure")
		}
		for i, host := range []string{"127.0.0.1", "127.0.0.2"} {
			c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			if err == nil {
				c.Close()
			}
			if (err == nil) != want[i] {
				t.Errorf("%q: %s: %v", config, host, err)
			}
		}
		r.signal(syscall.SIGTERM)
	}

	// The read-only port does not depend on enableServer.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	off := strings.Replace(alone, "enableServer: false",
		fmt.Sprintf("enableServer: false\naddress: 127.0.0.1\nreadOnlyPort: %d", port), 1)
	r := begin(t, nil, "--config="+write(t, dir+"/k.yaml", off))
	r.until(r.log, "msg=\"started listening\" port=read-only")
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("without the server, the read-only port answers %s", resp.Status)
	}
	r.signal(syscall.SIGTERM)
}

// TestHealthServerUsesConfiguredAddress: health checks are served over plain HTTP, at the configured address only.
func TestHealthServerUsesConfiguredAddress(t *testing.T) {
	parity.ProvesPart(t, 3, "CFG-40")
	dir := t.TempDir()
	for config, want := range map[string][2]string{ // at 127.0.0.1, and at 127.0.0.2
		"healthzPort: %d": {"ok", ""},
		"healthzPort: %d\nhealthzBindAddress: 127.0.0.2": {"", "ok"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		text := strings.Replace(alone, "healthzPort: 0", fmt.Sprintf(config, port), 1)
		r := begin(t, nil, "--config="+write(t, dir+"/k.yaml", text))
		r.until(r.log, "msg=\"started listening\" port=healthz")
		for i, host := range []string{"127.0.0.1", "127.0.0.2"} {
			got := ""
			resp, err := http.Get(fmt.Sprintf("http://%s:%d/healthz", host, port))
			if err == nil {
				body, err := io.ReadAll(resp.Body)
				if resp.Body.Close(); err != nil {
					t.Fatal(err)
				}
				got = string(body)
			}
			if got != want[i] {
				t.Errorf("%q: %s says %q, %v, want %q", config, host, got, err, want[i])
			}
		}
		r.signal(syscall.SIGTERM)
	}
}

// TestConfigurationIsLogged: the configuration is logged at verbosity 5, with credentials masked.
func TestConfigurationIsLogged(t *testing.T) {
	parity.Proves(t, "CFG-14")
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "k.yaml"), alone+"staticPodURLHeader: {Authorization: [sesame]}\n")
	r := begin(t, nil, "--config="+file, "--v=5")
	s := r.until(r.log, "effective configuration")
	if !strings.Contains(s, "masked") || strings.Contains(s, "sesame") || !strings.Contains(s, `\"maxPods\":110`) {
		t.Errorf("logged: %s", s)
	}
	r = begin(t, nil, "--config="+file, "--v=4")
	for {
		s := r.until(r.log, "msg=")
		if strings.Contains(s, "effective configuration") {
			t.Errorf("logged at 4: %s", s)
		}
		if strings.Contains(s, "connected to container runtime") {
			return
		}
	}
}

// TestLockFile: an agent waits until no other holds the lock file. With --exit-on-lock-contention
// it exits when another process opens the file.
func TestLockFile(t *testing.T) {
	parity.Proves(t, "CFG-119")
	dir := t.TempDir()
	file, lock := write(t, dir+"/k.yaml", alone), dir+"/lock"
	first := begin(t, nil, "--config="+file, "--lock-file="+lock)
	first.until(first.states, "READY=1")
	second := begin(t, nil, "--config="+file, "--lock-file="+lock, "--exit-on-lock-contention")
	second.until(second.log, "waiting for the lock file")
	await.Until(t, "the second to be blocked", func() (string, bool) { return blocked(t, second.cmd.Process.Pid) })
	third := begin(t, nil, "--config="+file, "--lock-file="+lock)
	third.until(third.log, "waiting for the lock file")
	third.signal(syscall.SIGTERM)
	if err := third.cmd.Wait(); err != nil {
		t.Errorf("ended with %v while it waited", err)
	}
	select { // the third process has started and exited meanwhile
	case s := <-second.states:
		t.Fatalf("reported %s while another holds the lock", s)
	default:
	}
	first.signal(syscall.SIGTERM)
	second.until(second.states, "READY=1")
	f, err := os.Open(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	second.until(second.log, "another process opened the lock file")
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("on lock contention it ended with %v, want status 0", err)
	}
	if code, _, complaints := kubelet(t, "--config="+file, "--exit-on-lock-contention"); code != 1 ||
		!strings.Contains(complaints, "--exit-on-lock-contention: true needs --lock-file") {
		t.Errorf("without a file: %d %s", code, complaints)
	}
}

// blocked reports whether a process waits for the lock of a file. It also returns all locks.
func blocked(t *testing.T, pid int) (locks string, ok bool) {
	t.Helper()
	data, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		// 6: -> FLOCK  ADVISORY  WRITE 2343 fe:00:9978119 0 EOF
		if f := strings.Fields(line); len(f) > 5 && f[1] == "->" && f[2] == "FLOCK" && f[5] == fmt.Sprint(pid) {
			return "", true
		}
	}
	return string(data), false
}

// TestUnprivileged: an agent that is not root logs an error and continues.
func TestUnprivileged(t *testing.T) {
	parity.Proves(t, "CFG-139")
	need.Root(t, "becoming another user")
	dir, err := os.MkdirTemp("", "unprivileged")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/kubelet", exe, 0o755); err != nil {
		t.Fatal(err)
	}
	file := write(t, dir+"/k.yaml", alone)
	cmd := exec.Command(dir+"/kubelet", "--hostname-override=n1", "--config="+file, "--root-dir="+dir+"/root",
		"--container-runtime-endpoint=unix://"+dir+"/none.sock")
	cmd.Env = append(os.Environ(), asKubelet+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
		Pdeathsig:  syscall.SIGKILL,
	}
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err == nil || cmd.ProcessState == nil {
		t.Fatalf("%v", err)
	}
	logged := out.String()
	if !strings.Contains(logged, "kubelet is not running as root") || !strings.Contains(logged, "level=ERROR") ||
		!strings.Contains(logged, "uid=65534") {
		t.Errorf("logged:\n%s", logged)
	}
	// It continued until the first step that needs the privilege.
	if !strings.Contains(logged, "make directory "+dir+"/root: ") {
		t.Errorf("logged:\n%s", logged)
	}
}

// TestEndpoints: the image service may have another endpoint than the runtime service.
func TestEndpoints(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-104")
	dir, err := os.MkdirTemp("", "images") // the length of socket paths is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	images := fakecri.New(fakecri.Options{})
	if err := images.Listen(dir + "/images.sock"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(images.Disconnect)
	file := write(t, dir+"/k.yaml", alone+"imageServiceEndpoint: unix://"+dir+"/images.sock\n")
	// begin sets the endpoint of the runtime service.
	r := begin(t, nil, "--config="+file)
	r.until(r.states, "READY=1")
	asked := func(cri *fakecri.Runtime, method string) bool {
		for _, c := range cri.Calls(0) {
			if c.Method == method {
				return true
			}
		}
		return false
	}
	await.Until(t, "both calls", func() (string, bool) {
		images, status := asked(images, "ListImages"), asked(r.cri, "Status")
		return fmt.Sprintf("asked for images %v, for its status %v", images, status), images && status
	})
	if asked(images, "Status") || asked(r.cri, "ListImages") {
		t.Error("the two are taken for one another")
	}
	r.signal(syscall.SIGTERM)
	// Without its own endpoint, the image service is called at that of the runtime.
	r = begin(t, nil, "--config="+write(t, dir+"/one.yaml", alone))
	r.until(r.states, "READY=1")
	await.True(t, "the runtime to be asked for images", func() bool { return asked(r.cri, "ListImages") })
	if _, out, _ := kubelet(t, "--show-config"); !strings.Contains(out,
		`containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock"`) {
		t.Errorf("by default:\n%s", out)
	}
}
