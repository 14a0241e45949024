package differ

import (
	"regexp"
	"strings"
)

var (
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	ids       = regexp.MustCompile(`([a-z]+://)[0-9a-f]{64}`)
	bareIDs   = regexp.MustCompile(`(^|[^0-9a-f:])[0-9a-f]{64}\b`)
	addresses = regexp.MustCompile(`127\.20[12]\.\d+\.\d+`) // of the fake runtime's pods
	// Of nodes, and of the pods of containerd.
	rigAddresses = regexp.MustCompile(`\b10\.231\.\d+\.\d+\b`)
	uuids        = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	versions     = regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`)
	pulls        = regexp.MustCompile(`in \S+ \(\S+ including waiting\)`)
	tokens       = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`)
	md5s         = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	account      = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	endings      = regexp.MustCompile(`(containers/[^/]+/)[0-9a-f]{8}\b`)
	logSuffix    = regexp.MustCompile(`container\(([0-9a-f-]+|UID)\)`)
)

// normal replaces the parts of a text that differ between the sides or between runs by placeholders. Most
// texts are short, so patterns that need a longer text are not tried.
func (s *side) normal(text string, uids []string) string {
	if len(text) >= shortest {
		for _, u := range uids {
			text = strings.ReplaceAll(text, u, "UID")
		}
		text = s.words().Replace(text)
		if strings.Contains(text, "10.") {
			text = rigAddresses.ReplaceAllStringFunc(text, s.address)
		}
	}
	for _, n := range normals {
		if strings.Contains(text, n.sign) && len(text) >= n.length {
			text = n.pattern.ReplaceAllString(text, n.by)
		}
	}
	return text
}

// shortest is the length of the shortest name or address of a side.
const shortest = 8

// words replaces the names of a side. The agent's directory is known once it runs.
func (s *side) words() *strings.Replacer {
	s.once.Do(func() {
		s.names = strings.NewReplacer(s.kubelet.Root, "ROOT", s.rig.Dir, "RIG", s.rig.Name, "RIG", s.node, "NODE", s.ns,
			"NAMESPACE")
	})
	return s.names
}

// address is the placeholder of an address of the rig's network.
func (s *side) address(a string) string {
	if a == s.rig.NodeIP() {
		return "NODEIP"
	}
	return "PODIP"
}

// normals are in the order in which they are applied. A text that does not contain the sign, or is shorter
// than the length, cannot match.
var normals = []struct {
	sign    string
	length  int
	pattern *regexp.Regexp
	by      string
}{
	{"T", 20, times, "TIME"},
	{"eyJ", 0, tokens, "TOKEN"},
	{"://", 64, ids, "${1}ID"},
	{"", 64, bareIDs, "${1}ID"},
	{"127.20", 0, addresses, "PODIP"},
	{"-", 36, uuids, "UUID"},
	{"..20", 0, versions, "..VERSION"},
	{"including waiting", 0, pulls, "in SOME TIME"},
	{"kube-api-access-", 0, account, "kube-api-access-RANDOM"},
	{"containers/", 0, endings, "${1}RANDOM"},
	{"container(", 0, logSuffix, "container(UID)"},
	{"", 32, md5s, "MD5"},
}

var numbers = regexp.MustCompile(`\d+`)

// general is a text without the parts that belong to one life only: names of the pod and of its
// containers, and numbers.
func general(l *Life, text string) string {
	text = strings.ReplaceAll(text, l.Name, "POD")
	for _, c := range containers(l.Pod) {
		text = regexp.MustCompile(`\b`+regexp.QuoteMeta(c.Name)+`\b`).ReplaceAllString(text, "C")
	}
	text = numbers.ReplaceAllString(text, "#")
	if len(text) > 240 {
		text = text[:240] + "…"
	}
	return text
}
