//! GGUF and safetensors files over ranged asynchronous reads, with limits for hostile input.
