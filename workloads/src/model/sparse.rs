//! Models whose memory is tables and graphs.

use super::net::Net;
use super::tape::{Dtype, Var};

/// Rows of the 26 tables of the Criteo Kaggle data set (dl-models 5).
const KAGGLE: [u64; 26] = [
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194, 27, 14_992,
    5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
];

/// DLRM (Naumov et al. 2019) on Criteo Kaggle: 26 tables of 16 columns, dense gradients.
pub(super) fn dlrm(net: &mut Net, batch: u64) {
    const DIM: u64 = 16;
    let dense = net.input(&[batch, 13], Dtype::F32);
    let target = net.input(&[batch, 1], Dtype::F32);
    let mut x = dense;
    for (layer, width) in [512, 256, 64, DIM].into_iter().enumerate() {
        x = net.linear(&format!("bot_l.{}", 2 * layer), x, width, true);
        x = net.activation("relu", "threshold_backward", x, true);
    }
    let mut vectors = vec![x];
    for (table, rows) in KAGGLE.into_iter().enumerate() {
        let ids = net.input(&[batch], Dtype::I64);
        let weight = net.scope(format!("emb_l.{table}"), |net| net.param("weight", &[rows, DIM]));
        vectors.push(net.embedding(ids, weight, &[batch, DIM]));
    }
    let count = vectors.len() as u64;
    let stacked = net.cat(&vectors, &[batch, count, DIM]);
    let turned = net.view(stacked, &[batch, DIM, count]);
    let products = net.bmm(stacked, turned);
    // The lower triangle without the diagonal.
    let pairs = net.gather_pairs(products, &[batch, count * (count - 1) / 2]);
    let mut y = net.cat(&[x, pairs], &[batch, DIM + count * (count - 1) / 2]);
    for (layer, width) in [512, 256].into_iter().enumerate() {
        y = net.linear(&format!("top_l.{}", 2 * layer), y, width, true);
        y = net.activation("relu", "threshold_backward", y, true);
    }
    let y = net.linear("top_l.4", y, 1, true);
    let y = net.activation("sigmoid", "sigmoid_backward", y, true);
    net.binary_cross_entropy(y, target);
}

/// A graph convolutional network (Kipf and Welling 2017) of two layers over a whole graph: `nodes` of 128
/// features with 16 neighbours each, 256 hidden units, 40 classes.
pub(super) fn gcn(net: &mut Net, nodes: u64) {
    const FEATURES: u64 = 128;
    const HIDDEN: u64 = 256;
    const CLASSES: u64 = 40;
    const DEGREE: u64 = 16;
    let x = net.input(&[nodes, FEATURES], Dtype::F32);
    let edges = net.input(&[2, nodes * DEGREE], Dtype::I64);
    let target = net.input(&[nodes], Dtype::I64);
    let x = layer(net, "conv1", x, edges, HIDDEN);
    let x = net.activation("relu", "threshold_backward", x, true);
    let x = net.dropout(x);
    let x = layer(net, "conv2", x, edges, CLASSES);
    net.cross_entropy(x, target);
}

/// Features times weights, then the sum over neighbours.
fn layer(net: &mut Net, name: &str, x: Var, edges: Var, width: u64) -> Var {
    net.scope(name, |net| {
        let inner = net.shape(x)[1];
        let weight = net.param("lin.weight", &[width, inner]);
        let bias = net.param("bias", &[width]);
        let y = net.matmul_param(x, weight, width, None);
        let y = net.spmm(edges, y);
        net.add_param(y, bias)
    })
}
