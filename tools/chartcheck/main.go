// Command chartcheck lints the Helm chart, renders it with its own values and with each file of values that is named, and
// decodes what it rendered into the types of Kubernetes, strictly: an unknown or duplicate field is an error. It is a module
// of its own, so that none of this is among the gateway's dependencies.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: chartcheck CHART [VALUES …]")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(dir string, files []string) error {
	c, err := loader.Load(dir)
	if err != nil {
		return fmt.Errorf("loading the chart: %w", err)
	}
	var problems []error
	for _, name := range append([]string{""}, files...) {
		values := chartutil.Values{}
		if name != "" {
			if values, err = chartutil.ReadValuesFile(name); err != nil {
				return fmt.Errorf("reading values: %w", err)
			}
		}
		for _, m := range lint.All(dir, values, "default", true).Messages {
			if m.Severity >= support.WarningSev {
				problems = append(problems, fmt.Errorf("%s: %w", name, m))
			}
		}
		kinds, err := render(c, values)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
		if name == "" {
			name = "its own values"
		}
		fmt.Printf("%s: %s\n", name, strings.Join(kinds, ", "))
	}
	return errors.Join(problems...)
}

// render renders the chart and decodes every document; it returns their kinds.
func render(c *chart.Chart, values chartutil.Values) (kinds []string, err error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}
	release := chartutil.ReleaseOptions{Name: "example", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, capabilities)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	rendered, err := (engine.Engine{Strict: true}).Render(c, all)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var problems []error
	for file, text := range rendered {
		if strings.HasSuffix(file, ".txt") {
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			kind, err := decode(decoder, []byte(document))
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", file, err))
			}
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds, errors.Join(problems...)
}

// decode decodes one document. A kind that Kubernetes itself does not have is only read as YAML.
func decode(decoder runtime.Decoder, document []byte) (kind string, err error) {
	var header struct{ Kind string }
	if err := yaml.Unmarshal(document, &header); err != nil {
		return "", fmt.Errorf("not YAML: %w", err)
	}
	if header.Kind == "ServiceMonitor" {
		var any map[string]any
		return header.Kind, yaml.UnmarshalStrict(document, &any)
	}
	if _, _, err = decoder.Decode(document, nil, nil); err != nil {
		err = fmt.Errorf("%s: %w", header.Kind, err)
	}
	return header.Kind, err
}
