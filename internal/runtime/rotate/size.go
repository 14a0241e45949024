package rotate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ParseMaxSize parses containerLogMaxSize. A negative result means that logs are not rotated.
func ParseMaxSize(text string) (int64, error) {
	size, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("parse containerLogMaxSize: %w", err)
	case size.Sign() < 0:
		return -1, nil
	}
	return max(size.Value(), 1), nil
}
