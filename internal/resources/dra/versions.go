package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// judge says by which service a driver that wants to register is called: the first of
// those it names that is known here.
func judge(name string, services []string) (string, error) {
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || len(name) > 63 {
		return "", fmt.Errorf("DRA driver name %q is not valid: %s", name, strings.Join(errs, "; "))
	}
	if len(services) == 0 {
		return "", errors.New("empty list for supported gRPC services, expecting at least one")
	}
	for _, s := range services {
		if s == serviceV1 || s == serviceV1Beta1 {
			return s, nil
		}
	}
	return "", fmt.Errorf("support for at least one of %s and %s is required, the driver has %q", serviceV1, serviceV1Beta1, services)
}

// tellsHealth reports whether a driver says how well its devices are.
func tellsHealth(services []string) bool { return slices.Contains(services, serviceHealth) }
