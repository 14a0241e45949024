package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Own are the settings that upstream's KubeletConfiguration does not have. In the configuration file they are fields
// with the prefix keelson.dev/; upstream's kubelet warns about them and ignores them.
type Own struct {
	// DevicePluginRegistrationTimeout is how long after the start of the agent pods wait for
	// device plugins that were registered before and have not registered again; 0: they do not
	// wait.
	DevicePluginRegistrationTimeout time.Duration
}

func defaultOwn() Own { return Own{DevicePluginRegistrationTimeout: 5 * time.Minute} }

// set reads the settings from the document.
func (o *Own) set(doc map[string]any) (ps Problems) {
	v, there := doc[fieldPluginTimeout]
	if !there || v == nil {
		return nil
	}
	var d metav1.Duration
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	switch {
	case err != nil:
		ps = append(ps, Problem{Field: fieldPluginTimeout, Value: shown(v), Why: "must be a duration such as 5m"})
	case d.Duration < 0:
		ps = append(ps, Problem{Field: fieldPluginTimeout, Value: shown(v), Why: "must not be negative"})
	default:
		o.DevicePluginRegistrationTimeout = d.Duration
	}
	return ps
}

// document returns the settings as fields of a configuration file.
func (o Own) document() map[string]any {
	return map[string]any{fieldPluginTimeout: o.DevicePluginRegistrationTimeout.String()}
}

// isOwn reports whether an error of strict decoding is about one of these settings.
func isOwn(complaint string) bool {
	return strings.HasSuffix(complaint, fmt.Sprintf("unknown field %q", fieldPluginTimeout))
}
