//! Convolutional networks for images, as torchvision builds them.

use super::net::{Net, Window, window};
use super::tape::{Dtype, Var};

fn image(net: &mut Net, batch: u64, side: u64) -> (Var, Var) {
    let x = net.input(&[batch, 3, side, side], Dtype::F32);
    let classes = net.classes();
    let target = net.targets(batch, classes);
    (x, target)
}

/// `ResNet` (He et al. 2016): blocks per stage, and whether they are bottlenecks.
pub(super) fn resnet(net: &mut Net, batch: u64, side: u64, blocks: [u64; 4], bottleneck: bool) {
    let (x, target) = image(net, batch, side);
    let x = net.conv2d("conv1", x, 64, window(7, 2, 3), false);
    let x = net.batch_norm("bn1", x);
    let x = net.scope("relu", |net| net.relu_(x));
    let mut x = net.scope("maxpool", |net| net.max_pool(x, window(3, 2, 1)));
    let expansion = if bottleneck { 4 } else { 1 };
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = net.scope(format!("layer{}.{block}", stage + 1), |net| {
                let change = stride != 1 || net.shape(x)[1] != width * expansion;
                let bias = net.conv_bias();
                let mut shortcut = net.shortcut(x);
                let mut y = x;
                if bottleneck {
                    y = net.conv2d("conv1", y, width, window(1, 1, 0), bias);
                    y = net.batch_norm("bn1", y);
                    y = net.scope("relu", |net| net.relu_(y));
                    y = net.conv2d("conv2", y, width, window(3, stride, 1), bias);
                    y = net.batch_norm("bn2", y);
                    y = net.scope("relu", |net| net.relu_(y));
                    y = net.conv2d("conv3", y, width * 4, window(1, 1, 0), bias);
                    y = net.batch_norm("bn3", y);
                } else {
                    y = net.conv2d("conv1", y, width, window(3, stride, 1), bias);
                    y = net.batch_norm("bn1", y);
                    y = net.scope("relu", |net| net.relu_(y));
                    y = net.conv2d("conv2", y, width, window(3, 1, 1), bias);
                    y = net.batch_norm("bn2", y);
                }
                if change {
                    shortcut = net.conv2d(
                        "downsample.0",
                        shortcut,
                        width * expansion,
                        window(1, stride, 0),
                        bias,
                    );
                    shortcut = net.batch_norm("downsample.1", shortcut);
                }
                let y = net.add_(y, shortcut);
                net.scope("relu", |net| net.relu_(y))
            });
        }
    }
    let x = net.scope("avgpool", |net| net.global_mean(x));
    let classes = net.classes();
    let x = net.linear("fc", x, classes, true);
    net.cross_entropy(x, target);
}

/// VGG-16 (Simonyan and Zisserman 2015).
pub(super) fn vgg16(net: &mut Net, batch: u64, side: u64) {
    let (mut x, target) = image(net, batch, side);
    let mut at = 0;
    for (convolutions, width) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..convolutions {
            x = net.conv2d(&format!("features.{at}"), x, width, window(3, 1, 1), true);
            x = net.scope(format!("features.{}", at + 1), |net| net.relu_(x));
            at += 2;
        }
        x = net.scope(format!("features.{at}"), |net| net.max_pool(x, window(2, 2, 0)));
        at += 1;
    }
    x = net.scope("avgpool", |net| net.adaptive_avg_pool(x, 7));
    x = net.view(x, &[batch, 512 * 49]);
    for at in [0, 3] {
        x = net.linear(&format!("classifier.{at}"), x, 4096, true);
        x = net.scope(format!("classifier.{}", at + 1), |net| net.relu_(x));
        x = net.scope(format!("classifier.{}", at + 2), |net| net.dropout(x));
    }
    let classes = net.classes();
    x = net.linear("classifier.6", x, classes, true);
    net.cross_entropy(x, target);
}

/// `AlexNet`, the single-column variant of torchvision.
pub(super) fn alexnet(net: &mut Net, batch: u64, side: u64) {
    let (mut x, target) = image(net, batch, side);
    let layers = [
        (0, 64, window(11, 4, 2), true),
        (3, 192, window(5, 1, 2), true),
        (6, 384, window(3, 1, 1), false),
        (8, 256, window(3, 1, 1), false),
        (10, 256, window(3, 1, 1), true),
    ];
    for (at, width, shape, pool) in layers {
        x = net.conv2d(&format!("features.{at}"), x, width, shape, true);
        x = net.scope(format!("features.{}", at + 1), |net| net.relu_(x));
        if pool {
            x = net.scope(format!("features.{}", at + 2), |net| {
                net.max_pool(x, window(3, 2, 0))
            });
        }
    }
    x = net.scope("avgpool", |net| net.adaptive_avg_pool(x, 6));
    x = net.view(x, &[batch, 256 * 36]);
    for at in [0, 3] {
        x = net.scope(format!("classifier.{at}"), |net| net.dropout(x));
        x = net.linear(&format!("classifier.{}", at + 1), x, 4096, true);
        x = net.scope(format!("classifier.{}", at + 2), |net| net.relu_(x));
    }
    let classes = net.classes();
    x = net.linear("classifier.6", x, classes, true);
    net.cross_entropy(x, target);
}

/// DenseNet-121 (Huang et al. 2017).
pub(super) fn densenet121(net: &mut Net, batch: u64, side: u64) {
    const GROWTH: u64 = 32;
    let (x, target) = image(net, batch, side);
    let x = net.conv2d("features.conv0", x, 64, window(7, 2, 3), false);
    let x = net.batch_norm("features.norm0", x);
    let x = net.scope("features.relu0", |net| net.relu_(x));
    let mut x = net.scope("features.pool0", |net| net.max_pool(x, window(3, 2, 1)));
    for (block, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        let name = format!("features.denseblock{}", block + 1);
        let mut features = vec![x];
        for layer in 1..=layers {
            let y = net.scope(format!("{name}.denselayer{layer}"), |net| {
                let y = join(net, &features);
                let y = net.batch_norm("norm1", y);
                let y = net.scope("relu1", |net| net.relu_(y));
                let y = net.conv2d("conv1", y, 4 * GROWTH, window(1, 1, 0), false);
                let y = net.batch_norm("norm2", y);
                let y = net.scope("relu2", |net| net.relu_(y));
                net.conv2d("conv2", y, GROWTH, window(3, 1, 1), false)
            });
            features.push(y);
        }
        x = net.scope(name, |net| join(net, &features));
        if block < 3 {
            x = net.scope(format!("features.transition{}", block + 1), |net| {
                let width = net.shape(x)[1] / 2;
                let y = net.batch_norm("norm", x);
                let y = net.scope("relu", |net| net.relu_(y));
                let y = net.conv2d("conv", y, width, window(1, 1, 0), false);
                net.scope("pool", |net| net.avg_pool(y, window(2, 2, 0)))
            });
        }
    }
    let x = net.batch_norm("features.norm5", x);
    let x = net.relu_(x);
    let x = net.global_mean(x);
    let classes = net.classes();
    let x = net.linear("classifier", x, classes, true);
    net.cross_entropy(x, target);
}

/// Feature maps side by side.
fn join(net: &mut Net, parts: &[Var]) -> Var {
    let mut shape = net.shape(parts[0]);
    shape[1] = parts.iter().map(|part| net.shape(*part)[1]).sum();
    net.cat(parts, &shape)
}

/// Inception-v3 (Szegedy et al. 2016), with its auxiliary classifier in training.
pub(super) fn inception_v3(net: &mut Net, batch: u64, side: u64) {
    let (x, target) = image(net, batch, side);
    let mut x = conv(net, "Conv2d_1a_3x3", x, 32, window(3, 2, 0));
    x = conv(net, "Conv2d_2a_3x3", x, 32, window(3, 1, 0));
    x = conv(net, "Conv2d_2b_3x3", x, 64, window(3, 1, 1));
    x = net.scope("maxpool1", |net| net.max_pool(x, window(3, 2, 0)));
    x = conv(net, "Conv2d_3b_1x1", x, 80, window(1, 1, 0));
    x = conv(net, "Conv2d_4a_3x3", x, 192, window(3, 1, 0));
    x = net.scope("maxpool2", |net| net.max_pool(x, window(3, 2, 0)));
    for (name, pool) in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)] {
        x = net.scope(name, |net| inception_a(net, x, pool));
    }
    x = net.scope("Mixed_6a", |net| inception_b(net, x));
    for (name, width) in [
        ("Mixed_6b", 128),
        ("Mixed_6c", 160),
        ("Mixed_6d", 160),
        ("Mixed_6e", 192),
    ] {
        x = net.scope(name, |net| inception_c(net, x, width));
    }
    let aux = net.training().then(|| {
        net.scope("AuxLogits", |net| {
            let y = net.avg_pool(x, window(5, 3, 0));
            let y = conv(net, "conv0", y, 128, window(1, 1, 0));
            let y = conv(net, "conv1", y, 768, window(5, 1, 0));
            let y = net.global_mean(y);
            let classes = net.classes();
            net.linear("fc", y, classes, true)
        })
    });
    x = net.scope("Mixed_7a", |net| inception_d(net, x));
    for name in ["Mixed_7b", "Mixed_7c"] {
        x = net.scope(name, |net| inception_e(net, x));
    }
    let y = net.scope("avgpool", |net| {
        let channels = net.shape(x)[1];
        net.mean(x, &[batch, channels, 1, 1])
    });
    let y = net.scope("dropout", |net| net.dropout(y));
    let y = net.view(y, &[batch, 2048]);
    let classes = net.classes();
    let y = net.linear("fc", y, classes, true);
    let main = net.cross_entropy(y, target);
    if let Some(aux) = aux {
        let side = net.cross_entropy(aux, target);
        let side = net.scalar("mul", side);
        net.add(main, side);
    }
}

/// Convolution, batch norm, rectifier.
fn conv(net: &mut Net, name: &str, x: Var, width: u64, shape: Window) -> Var {
    net.scope(name, |net| {
        let x = net.conv2d("conv", x, width, shape, false);
        let x = net.batch_norm("bn", x);
        net.relu_(x)
    })
}

fn inception_a(net: &mut Net, x: Var, pool: u64) -> Var {
    let a = conv(net, "branch1x1", x, 64, window(1, 1, 0));
    let b = conv(net, "branch5x5_1", x, 48, window(1, 1, 0));
    let b = conv(net, "branch5x5_2", b, 64, window(5, 1, 2));
    let c = conv(net, "branch3x3dbl_1", x, 64, window(1, 1, 0));
    let c = conv(net, "branch3x3dbl_2", c, 96, window(3, 1, 1));
    let c = conv(net, "branch3x3dbl_3", c, 96, window(3, 1, 1));
    let d = net.avg_pool(x, window(3, 1, 1));
    let d = conv(net, "branch_pool", d, pool, window(1, 1, 0));
    join(net, &[a, b, c, d])
}

fn inception_b(net: &mut Net, x: Var) -> Var {
    let a = conv(net, "branch3x3", x, 384, window(3, 2, 0));
    let b = conv(net, "branch3x3dbl_1", x, 64, window(1, 1, 0));
    let b = conv(net, "branch3x3dbl_2", b, 96, window(3, 1, 1));
    let b = conv(net, "branch3x3dbl_3", b, 96, window(3, 2, 0));
    let c = net.max_pool(x, window(3, 2, 0));
    join(net, &[a, b, c])
}

/// Windows of one row or one column.
const fn row(width: u64) -> Window {
    Window {
        kernel: (1, width),
        stride: 1,
        padding: (0, width / 2),
    }
}

const fn column(height: u64) -> Window {
    Window {
        kernel: (height, 1),
        stride: 1,
        padding: (height / 2, 0),
    }
}

fn inception_c(net: &mut Net, x: Var, width: u64) -> Var {
    let a = conv(net, "branch1x1", x, 192, window(1, 1, 0));
    let b = conv(net, "branch7x7_1", x, width, window(1, 1, 0));
    let b = conv(net, "branch7x7_2", b, width, row(7));
    let b = conv(net, "branch7x7_3", b, 192, column(7));
    let c = conv(net, "branch7x7dbl_1", x, width, window(1, 1, 0));
    let c = conv(net, "branch7x7dbl_2", c, width, column(7));
    let c = conv(net, "branch7x7dbl_3", c, width, row(7));
    let c = conv(net, "branch7x7dbl_4", c, width, column(7));
    let c = conv(net, "branch7x7dbl_5", c, 192, row(7));
    let d = net.avg_pool(x, window(3, 1, 1));
    let d = conv(net, "branch_pool", d, 192, window(1, 1, 0));
    join(net, &[a, b, c, d])
}

fn inception_d(net: &mut Net, x: Var) -> Var {
    let a = conv(net, "branch3x3_1", x, 192, window(1, 1, 0));
    let a = conv(net, "branch3x3_2", a, 320, window(3, 2, 0));
    let b = conv(net, "branch7x7x3_1", x, 192, window(1, 1, 0));
    let b = conv(net, "branch7x7x3_2", b, 192, row(7));
    let b = conv(net, "branch7x7x3_3", b, 192, column(7));
    let b = conv(net, "branch7x7x3_4", b, 192, window(3, 2, 0));
    let c = net.max_pool(x, window(3, 2, 0));
    join(net, &[a, b, c])
}

fn inception_e(net: &mut Net, x: Var) -> Var {
    let a = conv(net, "branch1x1", x, 320, window(1, 1, 0));
    let b = conv(net, "branch3x3_1", x, 384, window(1, 1, 0));
    let b1 = conv(net, "branch3x3_2a", b, 384, row(3));
    let b2 = conv(net, "branch3x3_2b", b, 384, column(3));
    let b = join(net, &[b1, b2]);
    let c = conv(net, "branch3x3dbl_1", x, 448, window(1, 1, 0));
    let c = conv(net, "branch3x3dbl_2", c, 384, window(3, 1, 1));
    let c1 = conv(net, "branch3x3dbl_3a", c, 384, row(3));
    let c2 = conv(net, "branch3x3dbl_3b", c, 384, column(3));
    let c = join(net, &[c1, c2]);
    let d = net.avg_pool(x, window(3, 1, 1));
    let d = conv(net, "branch_pool", d, 192, window(1, 1, 0));
    join(net, &[a, b, c, d])
}
