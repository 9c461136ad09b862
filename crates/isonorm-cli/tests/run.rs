//! `isonorm run` on files, against the definitions.

mod common;

use common::{Sandbox, array, assert_close, moments};
use isonorm::{DType, TensorData};
use isonorm_cli::io::Array;

const EPS: f64 = 1e-5;

#[test]
fn layernorm_of_an_npy_file_is_what_it_is_defined_as() {
    let s = Sandbox::new();
    let (x, w, b) = (
        array(&[5, 7, 33], DType::F32, 1),
        array(&[33], DType::F32, 2),
        array(&[33], DType::F32, 3),
    );
    s.write_npy("x.npy", &x);
    s.write_npy("w.npy", &w);
    s.write_npy("b.npy", &b);
    let out = s.ok("run layernorm --input x.npy --weight w.npy --bias b.npy --output y.npy");
    for part in ["layernorm x=5x7x33 dtype=f32 pass=train", "GB/s", "non-finite", "y.npy"] {
        assert!(out.contains(part), "{out}");
    }
    let y = s.npy("y.npy");
    assert_eq!((&y.shape, y.data.dtype()), (&x.shape, DType::F32));
    let (w, b) = (w.data.to_f64(), b.data.to_f64());
    for (x, y) in x.data.to_f64().chunks(33).zip(y.data.to_f64().chunks(33)) {
        let (mean, var) = moments(x);
        let rstd = (var + EPS).sqrt().recip();
        let expected: Vec<_> = (0..33).map(|i| (x[i] - mean) * rstd * w[i] + b[i]).collect();
        assert_close(y, &expected, 1e-5);
    }
    assert_eq!(s.files(), ["b.npy", "w.npy", "x.npy", "y.npy"]);
}

/// The values of one channel of an N, C, spatial tensor.
fn channel(x: &Array, c: usize) -> Vec<f64> {
    let (channels, spatial) = (x.shape[1], x.shape[2..].iter().product::<usize>());
    let values = x.data.to_f64();
    let of = |n: usize| values[(n * channels + c) * spatial..][..spatial].to_vec();
    (0..x.shape[0]).flat_map(of).collect()
}

#[test]
fn a_safetensors_output_holds_every_result() {
    let s = Sandbox::new();
    let x = array(&[4, 3, 5, 5], DType::Bf16, 1);
    let parameter = |seed| array(&[3], DType::F32, seed);
    let (w, b, mean, var) = (parameter(2), parameter(3), parameter(4), parameter(5));
    let tensors = [("acts", &x), ("w", &w), ("b", &b), ("mean", &mean), ("var", &var)];
    s.write_safetensors("in.safetensors", &tensors);
    s.ok(
        "run 'batchnorm act=relu' --input in.safetensors:acts --weight in.safetensors:w --bias in.safetensors:b \
         --running-mean in.safetensors:mean --running-var in.safetensors:var --momentum 0.25 --repeat 3 \
         --save-mean --save-rstd --output out.safetensors",
    );
    let got = |name: &str| s.safetensors("out.safetensors", name);
    let y = got("y");
    assert_eq!((&y.shape, y.data.dtype()), (&x.shape, DType::Bf16));
    for c in 0..3 {
        let values = channel(&x, c);
        let (m, v) = moments(&values);
        let rstd = (v + EPS).sqrt().recip();
        let (w, b) = (w.data.to_f64()[c], b.data.to_f64()[c]);
        let expected: Vec<_> = values.iter().map(|x| ((x - m) * rstd * w + b).max(0.0)).collect();
        assert_close(&channel(&y, c), &expected, 0.02);
        assert_close(
            &[got("mean").data.to_f64()[c], got("rstd").data.to_f64()[c]],
            &[m, rstd],
            1e-5,
        );
        // Once, however often it was repeated, and with the unbiased variance.
        let (n, before) = (values.len() as f64, [mean.data.to_f64()[c], var.data.to_f64()[c]]);
        let after = [
            got("running_mean").data.to_f64()[c],
            got("running_var").data.to_f64()[c],
        ];
        assert_close(
            &after,
            &[0.75 * before[0] + 0.25 * m, 0.75 * before[1] + 0.25 * v * n / (n - 1.0)],
            1e-5,
        );
    }
}

#[test]
fn an_npy_output_has_the_other_results_beside_it() {
    let s = Sandbox::new();
    s.write_npy("x.npy", &array(&[2, 6, 4, 4], DType::F64, 1));
    let json = s.json("run groupnorm --groups 3 --act gelu --input x.npy --save-mean --save-rstd --output y.npy");
    assert_eq!(s.files(), ["x.npy", "y.mean.npy", "y.npy", "y.rstd.npy"]);
    assert_eq!(s.npy("y.rstd.npy").shape, [2, 3]);
    assert_eq!(
        json["problem"],
        "groupnorm x=2x6x4x4 groups=3 layout=nchw dtype=f64 affine=none act=gelu pass=train"
    );
    let tensors = json["tensors"].as_array().unwrap();
    let named: Vec<_> = tensors
        .iter()
        .map(|t| (t["name"].as_str().unwrap(), t["file"].as_str().unwrap()))
        .collect();
    assert_eq!(
        named,
        [
            ("x", "x.npy"),
            ("y", "y.npy"),
            ("mean", "y.mean.npy"),
            ("rstd", "y.rstd.npy")
        ]
    );
    assert_eq!(json["time"]["repeats"], 5);
    assert!(json["time"]["compulsory_bytes"].as_u64().unwrap() >= 2 * 2 * 6 * 16 * 8);
}

/// N, C, H, W as N, H, W, C, in memory order.
fn channels_last(x: &Array) -> Array {
    let [n, c, h, w] = x.shape[..] else {
        panic!("four dimensions")
    };
    let values = x.data.to_f64();
    let moved: Vec<_> = (0..n * h * w * c)
        .map(|i| values[(i / (h * w * c) * c + i % c) * h * w + i / c % (h * w)])
        .collect();
    Array {
        shape: vec![n, h, w, c],
        data: TensorData::from_f64(x.data.dtype(), &moved),
    }
}

#[test]
fn channels_last_files_have_their_channels_last() {
    let s = Sandbox::new();
    let x = array(&[3, 6, 4, 5], DType::F32, 1);
    s.write_npy("first.npy", &x);
    s.write_npy("last.npy", &channels_last(&x));
    for op in [
        "batchnorm",
        "instancenorm",
        "groupnorm --groups 2",
        "layernorm --over channels",
    ] {
        s.ok(&format!("run {op} --input first.npy --output y1.npy"));
        s.ok(&format!("run {op} --layout nhwc --input last.npy --output y2.npy"));
        let (first, last) = (channels_last(&s.npy("y1.npy")), s.npy("y2.npy"));
        assert_eq!(first.shape, last.shape);
        assert_close(&last.data.to_f64(), &first.data.to_f64(), 1e-5);
    }
}

#[test]
fn backward_writes_gradients() {
    let s = Sandbox::new();
    let (x, dy, w) = (
        array(&[6, 20], DType::F32, 1),
        array(&[6, 20], DType::F32, 2),
        array(&[20], DType::F32, 3),
    );
    s.write_npy("x.npy", &x);
    s.write_npy("dy.npy", &dy);
    s.write_npy("w.npy", &w);
    let line = "run 'layernorm affine=full' --pass backward --input x.npy --grad dy.npy --weight w.npy";
    s.ok(&format!("{line} --output g.safetensors"));
    let got = |name: &str| s.safetensors("g.safetensors", name).data.to_f64();
    let (xs, dys, ws) = (x.data.to_f64(), dy.data.to_f64(), w.data.to_f64());
    let (mut dx, mut dw, mut db) = (vec![], vec![0.0; 20], vec![0.0; 20]);
    for (x, dy) in xs.chunks(20).zip(dys.chunks(20)) {
        let (mean, var) = moments(x);
        let rstd = (var + EPS).sqrt().recip();
        let xhat: Vec<_> = x.iter().map(|x| (x - mean) * rstd).collect();
        let g: Vec<_> = dy.iter().zip(&ws).map(|(dy, w)| dy * w).collect();
        let g_mean = g.iter().sum::<f64>() / 20.0;
        let gx_mean = g.iter().zip(&xhat).map(|(g, x)| g * x).sum::<f64>() / 20.0;
        for i in 0..20 {
            dx.push(rstd * (g[i] - g_mean - xhat[i] * gx_mean));
            dw[i] += dy[i] * xhat[i];
            db[i] += dy[i];
        }
    }
    assert_close(&got("dx"), &dx, 1e-5);
    assert_close(&got("dweight"), &dw, 1e-5);
    assert_close(&got("dbias"), &db, 1e-5);

    // The same from saved statistics, and into .npy files.
    s.ok("run layernorm --input x.npy --weight w.npy --save-mean --save-rstd --output y.safetensors");
    s.ok(&format!(
        "{line} --mean y.safetensors:mean --rstd y.safetensors:rstd --output dx.npy"
    ));
    assert_close(&s.npy("dx.npy").data.to_f64(), &dx, 1e-5);
    assert_close(&s.npy("dx.dweight.npy").data.to_f64(), &dw, 1e-5);
}

#[test]
fn evaluation_uses_running_statistics_also_in_place() {
    let s = Sandbox::new();
    let x = array(&[2, 3, 8], DType::F16, 1);
    s.write_safetensors("x.safetensors", &[("x", &x)]);
    let statistic = |values: &[f64]| Array {
        shape: vec![3],
        data: TensorData::from_f64(DType::F32, values),
    };
    s.write_npy("m.npy", &statistic(&[0.5, -1.0, 0.0]));
    s.write_npy("v.npy", &statistic(&[1.0, 4.0, 0.25]));
    for problem in ["batchnorm pass=eval eps=0", "batchnorm pass=eval eps=0 inplace=yes"] {
        let line = format!("run '{problem}' --input x.safetensors --running-mean m.npy --running-var v.npy");
        s.ok(&format!("{line} --output y.safetensors"));
        let y = s.safetensors("y.safetensors", "y");
        let expected = |c: usize, x: f64| [(x - 0.5), (x + 1.0) / 2.0, x * 2.0][c];
        for c in 0..3 {
            let expected: Vec<_> = channel(&x, c).iter().map(|&x| expected(c, x)).collect();
            assert_close(&channel(&y, c), &expected, 2e-3);
        }
    }
}

#[test]
fn a_residual_is_added_and_gets_its_gradient() {
    let s = Sandbox::new();
    let (x, r, dy) = (
        array(&[4, 30], DType::F32, 1),
        array(&[4, 30], DType::F32, 2),
        array(&[4, 30], DType::F32, 3),
    );
    for (name, array) in [("x.npy", &x), ("r.npy", &r), ("dy.npy", &dy)] {
        s.write_npy(name, array);
    }
    s.ok("run rmsnorm --act relu --input x.npy --residual r.npy --output y.npy");
    s.ok("run rmsnorm --act relu --input x.npy --residual r.npy --grad dy.npy --pass backward --output dx.npy");
    let masked = s
        .npy("y.npy")
        .data
        .to_f64()
        .iter()
        .zip(dy.data.to_f64())
        .map(|(y, dy)| if *y > 0.0 { dy } else { 0.0 })
        .collect::<Vec<_>>();
    assert_eq!(s.npy("dx.dresidual.npy").data.to_f64(), masked);
}

#[test]
fn a_residual_stream_is_normalized_and_written() {
    let s = Sandbox::new();
    for (seed, name) in ["x.npy", "r.npy", "dy.npy", "ds.npy"].into_iter().enumerate() {
        s.write_npy(name, &array(&[4, 30], DType::F32, seed + 1));
    }
    s.ok("run rmsnorm --input x.npy --residual r.npy --stream --output y.npy");
    let sums: Vec<f64> = s
        .npy("x.npy")
        .data
        .to_f64()
        .iter()
        .zip(s.npy("r.npy").data.to_f64())
        .map(|(x, r)| f64::from(*x as f32 + r as f32))
        .collect();
    assert_eq!(s.npy("y.stream.npy").data.to_f64(), sums);
    s.ok("run rmsnorm --input y.stream.npy --output plain.npy");
    assert_eq!(s.npy("plain.npy"), s.npy("y.npy"));
    s.ok("run rmsnorm --input y.stream.npy --grad dy.npy --pass backward --output plain_dx.npy");
    s.ok("run rmsnorm --input y.stream.npy --stream --grad dy.npy --dstream ds.npy --pass backward --output dx.npy");
    let more = s
        .npy("plain_dx.npy")
        .data
        .to_f64()
        .into_iter()
        .zip(s.npy("ds.npy").data.to_f64());
    let more: Vec<f64> = more.map(|(dx, ds)| dx + ds).collect();
    assert_close(&s.npy("dx.npy").data.to_f64(), &more, 1e-6);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let s = Sandbox::new();
    s.write_npy("x.npy", &array(&[64, 1000], DType::F32, 1));
    for threads in [1, 2, 5] {
        s.ok(&format!(
            "run layernorm --threads {threads} --input x.npy --output y{threads}.npy"
        ));
    }
    assert_eq!(s.npy("y1.npy"), s.npy("y2.npy"));
    assert_eq!(s.npy("y1.npy"), s.npy("y5.npy"));
}

#[test]
fn empty_tensors_stay_empty_and_an_output_is_replaced() {
    let s = Sandbox::new();
    s.write_npy("x.npy", &array(&[0, 3, 4], DType::F32, 1));
    std::fs::write(s.path("y.npy"), "old").unwrap();
    s.ok("run batchnorm --input x.npy --output y.npy");
    assert_eq!(s.npy("y.npy").shape, [0, 3, 4]);
}
