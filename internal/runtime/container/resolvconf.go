package container

import (
	"errors"
	"io"
	"os"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilio "k8s.io/utils/io"
)

// resolvConf is the content of a resolv.conf.
type resolvConf struct {
	Servers  []string
	Searches []string
	Options  []string
}

// errNoNameserver is the error for a nameserver line without an address. Events show this text,
// which is upstream's including the trailing space.
var errNoNameserver = errors.New("nameserver list is empty ")

// maxResolvConf is the size at which the host's file is rejected.
const maxResolvConf = 10 << 20

// readResolvConf reads the host's resolv.conf.
func readResolvConf(path string) (resolvConf, error) {
	f, err := os.Open(path)
	if err != nil {
		return resolvConf{}, err
	}
	defer f.Close()
	return parseResolvConf(f)
}

// parseResolvConf parses as resolvers do: the last search line wins, options accumulate, comments
// take a whole line. Trailing dots of search domains are cut, so that one domain is not counted
// twice. A nameserver line without an address is an error; the rest is still returned.
func parseResolvConf(r io.Reader) (resolvConf, error) {
	b, err := utilio.ReadAtMost(r, maxResolvConf)
	if err != nil {
		return resolvConf{}, err
	}
	var c resolvConf
	var errs []error
	for _, line := range strings.Split(string(b), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				errs = append(errs, errNoNameserver)
				continue
			}
			c.Servers = append(c.Servers, fields[1])
		case "search":
			c.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					c.Searches = append(c.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			c.Options = mergeOptions(c.Options, fields[1:])
		}
	}
	return c, utilerrors.NewAggregate(errs)
}

// mergeOptions adds resolver options. An option replaces an earlier one of the same name.
func mergeOptions(older, newer []string) []string {
	out := append([]string(nil), older...)
next:
	for _, o := range newer {
		name, _, _ := strings.Cut(o, ":")
		for i := range out {
			if have, _, _ := strings.Cut(out[i], ":"); have == name {
				out[i] = o
				continue next
			}
		}
		out = append(out, o)
	}
	return out
}
