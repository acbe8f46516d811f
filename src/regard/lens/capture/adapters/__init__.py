"""One adapter per host of attention; `regard.lens.capture.session.Adapter` is their protocol."""
