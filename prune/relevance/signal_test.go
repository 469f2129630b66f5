package relevance

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// Rescaled values stay finite and at most the weight, whatever the peak; where weight / peak is finite
// they are, bit for bit, the values multiplied by it.
func TestRescaledValuesAreFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.SliceOfN(rapid.Uint32Range(0, math.Float32bits(math.MaxFloat32)), 1, 20).Draw(t, "bits")
		weight := rapid.Float32Range(.01, 5).Draw(t, "weight")
		v := make([]float32, len(bits))
		for i, b := range bits {
			if rapid.Bool().Draw(t, "small") {
				b %= 1 << 24 // denormal, or close
			}
			v[i] = math.Float32frombits(b)
		}
		top := Peak(v)
		was := append([]float32(nil), v...)
		rescale(v, weight)
		for i := range v {
			if !finite(float64(v[i])) || v[i] < 0 || float64(v[i]) > float64(weight)*1.001 {
				t.Fatalf("%v of %v becomes %v", was[i], top, v[i])
			}
			if scale := weight / top; finite(float64(scale)) && v[i] != was[i]*scale {
				t.Fatalf("%v of %v becomes %v, not %v", was[i], top, v[i], was[i]*scale)
			}
		}
	})
}
