package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// chooseService validates a registration. It returns the service by which the driver is called: the first known one in
// its list.
func chooseService(name string, services []string) (string, error) {
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
	return "", fmt.Errorf("support for at least one of %s and %s is required, the driver has %q", serviceV1,
		serviceV1Beta1, services)
}

// servesHealth reports whether a driver serves device health.
func servesHealth(services []string) bool { return slices.Contains(services, serviceHealth) }
