package csi

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

// Every driver call is measured with upstream's labels and buckets.
func TestDriverCallMetrics(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-58")
	parity.ProvesPart(t, 2, "PLUG-19")
	parity.ProvesPart(t, 4, "VOL-11")
	dir, err := os.MkdirTemp("", "csim") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const name = "metrics.csi.keelson.example"
	driver := csidriver.New(csidriver.Config{Name: name, Dir: filepath.Join(dir, "d"), Node: "n1"})
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	defer driver.Stop()
	reg := prometheus.NewPedanticRegistry()
	observe := NewMetrics(reg)
	drivers := NewDrivers(nil, observe, slog.New(slog.DiscardHandler))
	driver.Next("NodeGetInfo", csidriver.Fault{Err: status.Error(codes.Unavailable, "starting")})
	for _, fails := range []bool{true, false, false} {
		if err := drivers.Register(context.Background(), name, driver.Socket(),
			[]string{"1.0.0"}); (err != nil) != fails {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "csi_operations_seconds" {
		t.Fatalf("%v, %v", families, err)
	}
	counts := map[string]uint64{}
	for _, m := range families[0].Metric {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		code := labels["grpc_status_code"]
		delete(labels, "grpc_status_code")
		if want := map[string]string{
			"driver_name": name,
			"method_name": "/csi.v1.Node/NodeGetInfo",
			"migrated":    "false",
		}; !reflect.DeepEqual(labels, want) {
			t.Errorf("labels %v, want %v and grpc_status_code", labels, want)
		}
		counts[code] = m.Histogram.GetSampleCount()
		var bounds []float64
		for _, b := range m.Histogram.Bucket {
			bounds = append(bounds, b.GetUpperBound())
		}
		if want := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}; !reflect.DeepEqual(bounds, want) {
			t.Errorf("buckets %v, want %v", bounds, want)
		}
	}
	if want := map[string]uint64{"OK": 2, "Unavailable": 1}; !reflect.DeepEqual(counts, want) {
		t.Errorf("counted %v, want %v", counts, want)
	}
	observe(name, "NodeStageVolume", "OK", true, time.Second)
	const series = "csi_operations_seconds{driver_name=" + name +
		",grpc_status_code=OK,method_name=/csi.v1.Node/NodeStageVolume,migrated=true}"
	if got := scrape.Of(t, gathered{reg}); got[series] != 1 {
		t.Errorf("no %s in %v", series, got)
	}
}

// gathered makes a collector of all metrics of a registry.
type gathered struct{ *prometheus.Registry }

func (g gathered) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }
func (g gathered) Collect(ch chan<- prometheus.Metric) { g.Registry.Collect(ch) }
