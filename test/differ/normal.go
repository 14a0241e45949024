package differ

import (
	"regexp"
	"strings"
)

var (
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	ids       = regexp.MustCompile(`([a-z]+://)[0-9a-f]{64}`)
	bareIDs   = regexp.MustCompile(`(^|[^0-9a-f:])[0-9a-f]{64}\b`)
	addresses = regexp.MustCompile(`127\.20[12]\.\d+\.\d+`)
	uuids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	versions  = regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`)
	pulls     = regexp.MustCompile(`in \S+ \(\S+ including waiting\)`)
	tokens    = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`)
	md5s      = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
	account   = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	endings   = regexp.MustCompile(`(containers/[^/]+/)[0-9a-f]{8}\b`)
	logSuffix = regexp.MustCompile(`container\(([0-9a-f-]+|UID)\)`)
)

// normal replaces what differs between the sides, or from one run to another, by words.
func (s *side) normal(text string, uids []string) string {
	var pairs []string
	for _, u := range uids {
		pairs = append(pairs, u, "UID")
	}
	pairs = append(pairs, s.kubelet.Root, "ROOT", s.rig.Dir, "RIG", s.rig.Name, "RIG", s.node, "NODE", s.ns, "NAMESPACE", s.rig.NodeIP(), "NODEIP")
	text = strings.NewReplacer(pairs...).Replace(text)
	text = times.ReplaceAllString(text, "TIME")
	text = tokens.ReplaceAllString(text, "TOKEN")
	text = ids.ReplaceAllString(text, "${1}ID")
	text = bareIDs.ReplaceAllString(text, "${1}ID")
	text = addresses.ReplaceAllString(text, "PODIP")
	text = uuids.ReplaceAllString(text, "UUID")
	text = versions.ReplaceAllString(text, "..VERSION")
	text = pulls.ReplaceAllString(text, "in SOME TIME")
	text = account.ReplaceAllString(text, "kube-api-access-RANDOM")
	text = endings.ReplaceAllString(text, "${1}RANDOM")
	text = logSuffix.ReplaceAllString(text, "container(UID)")
	return md5s.ReplaceAllString(text, "MD5")
}

var numbers = regexp.MustCompile(`\d+`)

// general is a text without what is a single life's: names of the pod and of its containers,
// and numbers.
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
