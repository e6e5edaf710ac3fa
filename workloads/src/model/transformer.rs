//! Transformers, as torchvision and the transformers library build them.

use super::net::{Mask, Net, window};
use super::tape::{Dtype, Param, Var};

/// Vision transformer B/16 (Dosovitskiy et al. 2021).
pub(super) fn vit_b_16(net: &mut Net, batch: u64, side: u64, checkpoint: bool) {
    const WIDTH: u64 = 768;
    const HEADS: u64 = 12;
    let x = net.input(&[batch, 3, side, side], Dtype::F32);
    let classes = net.classes();
    let target = net.targets(batch, classes);
    let x = net.conv2d("conv_proj", x, WIDTH, window(16, 16, 0), true);
    let tokens = (side / 16) * (side / 16) + 1;
    let shape = [batch, tokens, WIDTH];
    let x = net.view(x, &[batch, tokens - 1, WIDTH]);
    let class = net.param("class_token", &[1, 1, WIDTH]);
    let x = net.cat_param(class, x, &shape);
    let mut x = net.scope("encoder", |net| {
        let positions = net.param("pos_embedding", &[1, tokens, WIDTH]);
        net.add_param(x, positions)
    });
    for layer in 0..12 {
        x = net.scope(format!("encoder.layers.encoder_layer_{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let y = net.layer_norm("ln_1", x);
                let y = net.scope("self_attention", |net| {
                    // The module works with tokens before samples: another order in memory, and so a
                    // copy, unless there is one sample (torch.nn.MultiheadAttention, batch_first).
                    let swapped = |net: &mut Net, y| if batch > 1 { net.clone_as(y, &shape) } else { y };
                    let y = swapped(net, y);
                    let weight = net.param("in_proj_weight", &[3 * WIDTH, WIDTH]);
                    let bias = net.param("in_proj_bias", &[3 * WIDTH]);
                    let qkv = net.matmul_param(y, weight, 3 * WIDTH, Some(bias));
                    // One copy that puts the three behind each other.
                    let qkv = net.clone_as(qkv, &[batch, tokens, 3 * WIDTH]);
                    let parts = net.split(qkv, &[WIDTH; 3]);
                    let heads = [batch, HEADS, tokens, WIDTH / HEADS];
                    let [q, k, v] = [0, 1, 2].map(|i| net.view(parts[i], &heads));
                    let y = net.attention([q, k, v], Mask::None, false);
                    let y = net.view(y, &shape);
                    let y = swapped(net, y);
                    net.linear("out_proj", y, WIDTH, true)
                });
                let x = net.add(y, x);
                let y = net.layer_norm("ln_2", x);
                let y = net.linear("mlp.0", y, 4 * WIDTH, true);
                let y = net.scope("mlp.1", |net| net.gelu(y));
                let y = net.linear("mlp.3", y, WIDTH, true);
                net.add(x, y)
            })
        });
    }
    let x = net.layer_norm("encoder.ln", x);
    let x = net.slice(x, &[batch, WIDTH]);
    let x = net.linear("heads.head", x, classes, true);
    net.cross_entropy(x, target);
}

/// Size of a BERT.
#[derive(Clone, Copy)]
pub(super) struct Bert {
    pub width: u64,
    pub layers: u64,
    pub heads: u64,
}

/// BERT (Devlin et al. 2019) with the heads of its pre-training.
pub(super) fn bert(net: &mut Net, batch: u64, tokens: u64, size: Bert, checkpoint: bool) {
    const WORDS: u64 = 30_522;
    let Bert { width, layers, heads } = size;
    let ids = net.input(&[batch, tokens], Dtype::I64);
    let target = net.input(&[batch * tokens], Dtype::I64);
    let next = net.input(&[batch], Dtype::I64);
    // Token types and positions.
    net.buffer(512 * 8);
    net.buffer(512 * 8);
    let shape = [batch, tokens, width];
    let words = net.scope("bert.embeddings.word_embeddings", |net| {
        net.param("weight", &[WORDS, width])
    });
    let x = net.embedding(ids, words, &shape);
    let types = net.scope("bert.embeddings.token_type_embeddings", |net| {
        net.param("weight", &[2, width])
    });
    let t = net.embedding(ids, types, &shape);
    let x = net.add(x, t);
    let positions = net.scope("bert.embeddings.position_embeddings", |net| {
        net.param("weight", &[512, width])
    });
    let p = net.embedding(ids, positions, &[1, tokens, width]);
    let x = net.add_(x, p);
    let x = net.layer_norm("bert.embeddings.LayerNorm", x);
    let mut x = net.dropout(x);
    let mask = net.helper("ones", &[], &[batch, tokens], Dtype::F32);
    let mask = net.helper("eq", &[mask], &[batch, tokens], Dtype::Bool);
    net.helper("all", &[mask], &[1], Dtype::Bool);
    for layer in 0..layers {
        x = net.scope(format!("bert.encoder.layer.{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let head = [batch, heads, tokens, width / heads];
                let qkv = ["query", "key", "value"].map(|name| {
                    let y = net.linear(&format!("attention.self.{name}"), x, width, true);
                    net.view(y, &head)
                });
                let y = net.attention(qkv, Mask::Padding, true);
                let y = net.view(y, &shape);
                let y = net.linear("attention.output.dense", y, width, true);
                let y = net.dropout(y);
                let y = net.add(y, x);
                let x = net.layer_norm("attention.output.LayerNorm", y);
                let y = net.linear("intermediate.dense", x, 4 * width, true);
                let y = net.gelu(y);
                let y = net.linear("output.dense", y, width, true);
                let y = net.dropout(y);
                let y = net.add(y, x);
                net.layer_norm("output.LayerNorm", y)
            })
        });
    }
    let first = net.slice(x, &[batch, width]);
    let pooled = net.linear("bert.pooler.dense", first, width, true);
    let pooled = net.activation("tanh", "tanh_backward", pooled, true);
    let y = net.linear("cls.predictions.transform.dense", x, width, true);
    let y = net.gelu(y);
    let y = net.layer_norm("cls.predictions.transform.LayerNorm", y);
    let bias = net.param("cls.predictions.bias", &[WORDS]);
    let logits = net.matmul_param(y, words, WORDS, Some(bias));
    let related = net.linear("cls.seq_relationship", pooled, 2, true);
    let logits = net.view(logits, &[batch * tokens, WORDS]);
    let a = net.cross_entropy(logits, target);
    let b = net.cross_entropy(related, next);
    net.add(a, b);
}

/// The encoder of BERT as many write it for themselves: layers that normalise first, sinusoidal positions, a
/// third segment for padding, no vocabulary head; the loss compares the last layer with its targets.
pub(super) fn bert_encoder(net: &mut Net, batch: u64, tokens: u64, size: Bert, checkpoint: bool) {
    const WORDS: u64 = 30_522;
    let Bert { width, layers, heads } = size;
    let ids = net.input(&[batch, tokens], Dtype::I64);
    let target = net.targets(batch * tokens, width);
    // Sinusoids.
    net.buffer(512 * width * 4);
    let shape = [batch, tokens, width];
    let segments = net.helper("zeros_like", &[ids], &[batch, tokens], Dtype::I64);
    let seen = net.helper("gt", &[ids], &[batch, tokens], Dtype::Bool);
    net.helper("repeat", &[seen], &[batch, tokens, tokens], Dtype::Bool);
    let words = net.scope("embedding.token", |net| net.param("weight", &[WORDS, width]));
    let x = net.embedding(ids, words, &shape);
    let x = net.scalar("add", x);
    let table = net.scope("embedding.segment", |net| net.param("weight", &[3, width]));
    let segments = net.embedding(segments, table, &shape);
    let x = net.add(x, segments);
    let mut x = net.dropout(x);
    for layer in 0..layers {
        x = net.scope(format!("transformer_blocks.{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let head = [batch, heads, tokens, width / heads];
                let y = encoder_norm(net, "input_sublayer.norm", x);
                let qkv = [0, 1, 2].map(|i| {
                    let z = net.linear(&format!("attention.linear_layers.{i}"), y, width, true);
                    net.view(z, &head)
                });
                let y = net.attention(qkv, Mask::Padding, true);
                let y = net.view(y, &shape);
                let y = net.linear("attention.output_linear", y, width, true);
                let y = net.dropout(y);
                let x = net.add(x, y);
                let y = encoder_norm(net, "output_sublayer.norm", x);
                let y = net.linear("feed_forward.w_1", y, 4 * width, true);
                let y = net.gelu(y);
                let y = net.dropout(y);
                let y = net.linear("feed_forward.w_2", y, width, true);
                let y = net.dropout(y);
                let x = net.add(x, y);
                net.dropout(x)
            })
        });
    }
    let x = net.view(x, &[batch * tokens, width]);
    net.cross_entropy(x, target);
}

fn encoder_norm(net: &mut Net, name: &str, x: Var) -> Var {
    if net.composed() {
        net.layer_norm_by_deviation(name, x)
    } else {
        net.layer_norm(name, x)
    }
}

/// Size of a GPT-2.
#[derive(Clone, Copy)]
pub(super) struct Gpt2 {
    pub width: u64,
    pub layers: u64,
    pub heads: u64,
}

/// GPT-2 (Radford et al. 2019). With `cache` the pass attends to that many tokens held in caches.
pub(super) fn gpt2(net: &mut Net, batch: u64, tokens: u64, size: Gpt2, checkpoint: bool, cache: Option<u64>) {
    const WORDS: u64 = 50_257;
    const POSITIONS: u64 = 1024;
    let Gpt2 { width, layers, heads } = size;
    let ids = net.input(&[batch, tokens], Dtype::I64);
    let shape = [batch, tokens, width];
    let words = net.scope("transformer.wte", |net| net.param("weight", &[WORDS, width]));
    let x = net.embedding(ids, words, &shape);
    let positions = net.helper("arange", &[], &[tokens], Dtype::I64);
    let table = net.scope("transformer.wpe", |net| net.param("weight", &[POSITIONS, width]));
    let p = net.embedding(positions, table, &[1, tokens, width]);
    let x = net.add(x, p);
    let mut x = net.scope("transformer.drop", |net| net.dropout(x));
    for layer in 0..layers {
        // The causal mask, and the value it is filled with.
        net.buffer(POSITIONS * POSITIONS);
        net.buffer(4);
        x = net.scope(format!("transformer.h.{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let y = net.layer_norm("ln_1", x);
                let y = net.scope("attn", |net| {
                    let qkv = net.linear("c_attn", y, 3 * width, true);
                    let parts = net.split(qkv, &[width; 3]);
                    let head = [batch, heads, tokens, width / heads];
                    // Views of the parts; the fused kernel wants them contiguous: value, key, query.
                    let fused = !net.eager();
                    let [q, k, v] = [0, 1, 2].map(|i| {
                        if fused {
                            net.clone_as(parts[i], &head)
                        } else {
                            net.view(parts[i], &head)
                        }
                    });
                    let [k, v] = cached(net, [k, v], cache, batch, heads, width / heads);
                    let y = net.attention([q, k, v], Mask::Causal, true);
                    let y = net.view(y, &shape);
                    let y = net.linear("c_proj", y, width, true);
                    net.scope("resid_dropout", |net| net.dropout(y))
                });
                let x = net.add(y, x);
                let y = net.layer_norm("ln_2", x);
                let y = net.linear("mlp.c_fc", y, 4 * width, true);
                let y = net.scope("mlp.act", |net| net.gelu_tanh(y));
                let y = net.linear("mlp.c_proj", y, width, true);
                let y = net.scope("mlp.dropout", |net| net.dropout(y));
                net.add(x, y)
            })
        });
    }
    let x = net.layer_norm("transformer.ln_f", x);
    language_head(net, x, words, WORDS, batch, tokens);
}

/// Keys and values that a pass attends to: its own, or the caches that hold `length` tokens.
fn cached(net: &mut Net, own: [Var; 2], length: Option<u64>, batch: u64, heads: u64, width: u64) -> [Var; 2] {
    let Some(length) = length else { return own };
    own.map(|new| {
        let cache = net.cache(&[batch, heads, length, width]);
        net.cache_update(cache, new);
        cache
    })
}

/// Logits, and in training the loss of the shifted labels.
fn language_head(net: &mut Net, x: Var, table: Param, words: u64, batch: u64, tokens: u64) {
    if !net.training() {
        // Only the last token's logits are asked for.
        let width = net.shape(x)[2];
        let last = net.slice(x, &[batch, width]);
        let logits = net.scope("lm_head", |net| net.matmul_param(last, table, words, None));
        net.helper("argmax", &[logits], &[batch], Dtype::I64);
        return;
    }
    let labels = net.input(&[batch, tokens], Dtype::I64);
    let logits = net.scope("lm_head", |net| net.matmul_param(x, table, words, None));
    let shifted = net.helper("constant_pad_nd", &[labels], &[batch, tokens + 1], Dtype::I64);
    let logits = net.view(logits, &[batch * tokens, words]);
    net.cross_entropy(logits, shifted);
}

/// Llama 2 7B (Touvron et al. 2023). With `cache` as for [`gpt2`].
pub(super) fn llama2_7b(net: &mut Net, batch: u64, tokens: u64, checkpoint: bool, cache: Option<u64>) {
    const WIDTH: u64 = 4096;
    const HEADS: u64 = 32;
    const HEAD: u64 = 128;
    const INNER: u64 = 11_008;
    const WORDS: u64 = 32_000;
    net.buffer(HEAD / 2 * 4);
    let keys = cache.unwrap_or(tokens);
    let ids = net.input(&[batch, tokens], Dtype::I64);
    let shape = [batch, tokens, WIDTH];
    let table = net.scope("model.embed_tokens", |net| net.param("weight", &[WORDS, WIDTH]));
    let mut x = net.embedding(ids, table, &shape);
    let mask = net.scope("model", |net| causal_mask(net, batch, tokens, keys));
    let (cos, sin) = net.scope("model.rotary_emb", |net| rotary_table(net, tokens, HEAD));
    for layer in 0..32 {
        x = net.scope(format!("model.layers.{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let y = rms_norm(net, "input_layernorm", x);
                let y = net.scope("self_attn", |net| {
                    let head = [batch, HEADS, tokens, HEAD];
                    let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|name| {
                        let y = net.linear(name, y, WIDTH, false);
                        net.view(y, &head)
                    });
                    let q = rotate(net, q, cos, sin);
                    let k = rotate(net, k, cos, sin);
                    let [k, v] = cached(net, [k, v], cache, batch, HEADS, HEAD);
                    let fused = !net.eager();
                    let [q, k, v] = [q, k, v].map(|y| {
                        let shape = net.shape(y);
                        if fused { net.clone_as(y, &shape) } else { y }
                    });
                    net.helper("scalar_tensor", &[], &[1], Dtype::F32);
                    net.helper("scalar_tensor", &[], &[1], Dtype::F32);
                    let bias = net.helper("where", &[mask], &[batch, 1, tokens, keys], Dtype::F32);
                    let y = net.attention([q, k, v], Mask::Added(bias), false);
                    let y = net.view(y, &shape);
                    net.linear("o_proj", y, WIDTH, false)
                });
                let x = net.add(x, y);
                let y = rms_norm(net, "post_attention_layernorm", x);
                let y = net.scope("mlp", |net| {
                    let gate = net.linear("gate_proj", y, INNER, false);
                    let gate = net.activation("silu", "silu_backward", gate, false);
                    let up = net.linear("up_proj", y, INNER, false);
                    let y = net.mul(gate, up);
                    net.linear("down_proj", y, WIDTH, false)
                });
                net.add(x, y)
            })
        });
    }
    let x = rms_norm(net, "model.norm", x);
    let head = net.scope("lm_head", |net| net.param("weight", &[WORDS, WIDTH]));
    language_head(net, x, head, WORDS, batch, tokens);
}

/// RMS normalisation from element-wise ops.
fn rms_norm(net: &mut Net, name: &str, x: Var) -> Var {
    net.scope(name, |net| {
        let shape = net.shape(x);
        let rows = [shape[0], shape[1], 1];
        let square = net.pow(x, 2);
        let mean = net.mean(square, &rows);
        let mean = net.scalar("add", mean);
        let scale = net.activation("rsqrt", "rsqrt_backward", mean, true);
        let y = net.mul(x, scale);
        let weight = net.param("weight", &[shape[2]]);
        net.mul_param(y, weight)
    })
}

/// Positions, and the mask of the keys that a query may see.
fn causal_mask(net: &mut Net, batch: u64, tokens: u64, keys: u64) -> Var {
    let positions = net.helper("arange", &[], &[tokens], Dtype::I64);
    let offset = net.helper("sub", &[positions], &[batch, 1], Dtype::I64);
    let longer = net.helper("cat", &[offset, positions], &[batch, tokens + 1], Dtype::I64);
    let step = net.helper("sub", &[longer], &[batch, tokens], Dtype::I64);
    let breaks = net.helper("ne", &[step], &[batch, tokens], Dtype::Bool);
    let segments = net.helper("cumsum", &[breaks], &[batch, tokens], Dtype::I64);
    let rows = net.helper("arange", &[], &[keys], Dtype::I64);
    let rows = in_place_helper(net, "add_", rows);
    net.helper("arange", &[], &[1], Dtype::I64);
    net.helper("arange", &[], &[1], Dtype::I64);
    let ones = net.helper("new_ones", &[rows], &[tokens], Dtype::Bool);
    let below = net.helper("le", &[rows], &[tokens, keys], Dtype::Bool);
    let mask = net.helper("bitwise_and", &[ones, below], &[tokens, keys], Dtype::Bool);
    let a = net.helper("index", &[segments], &[batch, tokens], Dtype::I64);
    let b = net.helper("index", &[segments], &[batch, tokens], Dtype::I64);
    let same = net.helper("eq", &[a, b], &[batch, tokens, keys], Dtype::Bool);
    net.helper("bitwise_and", &[mask, same], &[batch, tokens, keys], Dtype::Bool)
}

fn in_place_helper(net: &mut Net, op: &'static str, x: Var) -> Var {
    let shape = net.shape(x);
    net.helper(op, &[x], &shape, Dtype::I64)
}

/// Cosines and sines of the rotary position embedding.
fn rotary_table(net: &mut Net, tokens: u64, head: u64) -> (Var, Var) {
    let positions = net.helper("_to_copy", &[], &[1, 1, tokens], Dtype::F32);
    let angles = net.bmm_helper(positions, &[1, head / 2, tokens]);
    let both = net.helper("cat", &[angles], &[1, tokens, head], Dtype::F32);
    let table = |net: &mut Net, op| {
        let y = net.helper(op, &[both], &[1, tokens, head], Dtype::F32);
        net.helper("mul", &[y], &[1, tokens, head], Dtype::F32)
    };
    (table(net, "cos"), table(net, "sin"))
}

/// q cos + rotate(q) sin, where rotate swaps the halves and negates one.
fn rotate(net: &mut Net, x: Var, cos: Var, sin: Var) -> Var {
    let shape = net.shape(x);
    let direct = net.mul(x, cos);
    let parts = net.split(x, &[shape[3] / 2; 2]);
    let low = net.scalar("neg", parts[1]);
    let turned = net.cat(&[low, parts[0]], &shape);
    let turned = net.mul(turned, sin);
    net.add(direct, turned)
}

/// Size of an encoder-decoder for speech.
#[derive(Clone, Copy)]
pub(super) struct Whisper {
    pub width: u64,
    pub layers: u64,
    pub heads: u64,
}

/// An encoder-decoder in the style of Whisper (Radford et al. 2022): 30 s of audio as 3000 frames of 80 mel
/// bands, two convolutions, an encoder over 1500 positions, a decoder that attends to it.
pub(super) fn whisper(net: &mut Net, batch: u64, tokens: u64, size: Whisper, checkpoint: bool) {
    const WORDS: u64 = 51_865;
    const FRAMES: u64 = 3000;
    let Whisper { width, layers, heads } = size;
    let audio = net.input(&[batch, 80, 1, FRAMES], Dtype::F32);
    let ids = net.input(&[batch, tokens], Dtype::I64);
    let labels = net.input(&[batch * tokens], Dtype::I64);
    let row = |stride| super::net::Window {
        kernel: (1, 3),
        stride,
        padding: (0, 1),
    };
    let x = net.conv2d("encoder.conv1", audio, width, row(1), true);
    let x = net.gelu(x);
    let x = net.conv2d("encoder.conv2", x, width, row(2), true);
    let x = net.gelu(x);
    let frames = FRAMES / 2;
    let x = net.view(x, &[batch, frames, width]);
    // Sinusoids: fixed, yet counted among the parameters.
    let positions = net.param("encoder.embed_positions.weight", &[frames, width]);
    let mut x = net.add_param(x, positions);
    for layer in 0..layers {
        x = net.scope(format!("encoder.layers.{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let y = net.layer_norm("self_attn_layer_norm", x);
                let y = net.scope("self_attn", |net| cross(net, y, y, heads));
                let x = net.add(x, y);
                feed_forward(net, x)
            })
        });
    }
    let memory = net.layer_norm("encoder.layer_norm", x);
    let table = net.scope("decoder.embed_tokens", |net| net.param("weight", &[WORDS, width]));
    let y = net.embedding(ids, table, &[batch, tokens, width]);
    let positions = net.param("decoder.embed_positions.weight", &[448, width]);
    let p = net.embedding(ids, positions, &[1, tokens, width]);
    let mut y = net.add(y, p);
    for layer in 0..layers {
        y = net.scope(format!("decoder.layers.{layer}"), |net| {
            net.checkpoint(checkpoint, |net| {
                let z = net.layer_norm("self_attn_layer_norm", y);
                let z = net.scope("self_attn", |net| cross(net, z, z, heads));
                let y = net.add(y, z);
                let z = net.layer_norm("encoder_attn_layer_norm", y);
                let z = net.scope("encoder_attn", |net| cross(net, z, memory, heads));
                let y = net.add(y, z);
                feed_forward(net, y)
            })
        });
    }
    let y = net.layer_norm("decoder.layer_norm", y);
    if net.training() {
        let logits = net.scope("proj_out", |net| net.matmul_param(y, table, WORDS, None));
        let logits = net.view(logits, &[batch * tokens, WORDS]);
        net.cross_entropy(logits, labels);
    } else {
        language_head(net, y, table, WORDS, batch, tokens);
    }
}

/// Attention of one sequence to another; keys have no bias.
fn cross(net: &mut Net, x: Var, memory: Var, heads: u64) -> Var {
    let (shape, other) = (net.shape(x), net.shape(memory));
    let (batch, width) = (shape[0], shape[2]);
    let head = |tokens| [batch, heads, tokens, width / heads];
    let q = net.linear("q_proj", x, width, true);
    let q = net.view(q, &head(shape[1]));
    let k = net.linear("k_proj", memory, width, false);
    let k = net.view(k, &head(other[1]));
    let v = net.linear("v_proj", memory, width, true);
    let v = net.view(v, &head(other[1]));
    let y = net.attention([q, k, v], Mask::None, false);
    let y = net.view(y, &shape);
    net.linear("out_proj", y, width, true)
}

fn feed_forward(net: &mut Net, x: Var) -> Var {
    let width = net.shape(x)[2];
    let y = net.layer_norm("final_layer_norm", x);
    let y = net.linear("fc1", y, 4 * width, true);
    let y = net.gelu(y);
    let y = net.linear("fc2", y, width, true);
    net.add(x, y)
}
